#include "big_int.hpp"

#include <utility>
#include <vector>

namespace disttune::python {
namespace {

/// Python allows so many digits, whatever its limit is.
constexpr std::size_t k_digits = 640;

Ref small_int_of(const std::string& decimal) {
  return checked(PyLong_FromString(decimal.c_str(), nullptr, 10));
}

std::string small_decimal_of(PyObject* integer) {
  return std::string(utf8(checked(PyLong_Type.tp_repr(integer)).get()));
}

/// 10^k_digits, then its square, that one's square …
class Powers {
 public:
  Powers() {
    const Ref ten = checked(PyLong_FromLong(10));
    const Ref digits = checked(PyLong_FromSize_t(k_digits));
    m_powers.push_back(checked(PyNumber_Power(ten.get(), digits.get(), Py_None)));
  }
  PyObject* operator[](std::size_t i) {
    while (m_powers.size() <= i)
      m_powers.push_back(checked(PyNumber_Multiply(m_powers.back().get(), m_powers.back().get())));
    return m_powers[i].get();
  }

 private:
  std::vector<Ref> m_powers;
};

constexpr std::size_t digits_of_power(std::size_t i) { return k_digits << i; }

bool is_below(PyObject* a, PyObject* b) {
  const int below = PyObject_RichCompareBool(a, b, Py_LT);
  checked(below);
  return below == 1;
}

/// `positive` is below power `level`; halves until the parts are small. With `pad` exactly as many
/// digits as that power has zeros.
void append_decimal(std::string& out, PyObject* positive, Powers& powers, std::size_t level,
                    bool pad) {
  if (level == 0) {
    const std::string text = small_decimal_of(positive);
    if (pad) out.append(k_digits - text.size(), '0');
    out += text;
    return;
  }
  if (!pad && is_below(positive, powers[level - 1]))
    return append_decimal(out, positive, powers, level - 1, false);
  const Ref parts = checked(PyNumber_Divmod(positive, powers[level - 1]));
  append_decimal(out, PyTuple_GET_ITEM(parts.get(), 0), powers, level - 1, pad);
  append_decimal(out, PyTuple_GET_ITEM(parts.get(), 1), powers, level - 1, true);
}

Ref positive_of(std::string_view digits, Powers& powers) {
  if (digits.size() <= k_digits) return small_int_of(std::string(digits));
  std::size_t level = 0;
  while (digits_of_power(level + 1) < digits.size()) ++level;
  const std::size_t head = digits.size() - digits_of_power(level);
  const Ref high = positive_of(digits.substr(0, head), powers);
  const Ref low = positive_of(digits.substr(head), powers);
  const Ref raised = checked(PyNumber_Multiply(high.get(), powers[level]));
  return checked(PyNumber_Add(raised.get(), low.get()));
}

}  // namespace

std::string decimal_of(PyObject* integer) {
  if (const Ref text = Ref::steal(PyLong_Type.tp_repr(integer)))
    return std::string(utf8(text.get()));
  if (PyErr_ExceptionMatches(PyExc_ValueError) == 0) throw ErrorSet{};
  PyErr_Clear();
  const Ref zero = checked(PyLong_FromLong(0));
  const Ref positive = checked(PyNumber_Absolute(integer));
  std::string out = is_below(integer, zero.get()) ? "-" : "";
  Powers powers;
  std::size_t level = 0;
  while (!is_below(positive.get(), powers[level])) ++level;
  append_decimal(out, positive.get(), powers, level, false);
  return out;
}

Ref int_of(std::string_view decimal) {
  if (decimal.size() <= k_digits) return small_int_of(std::string(decimal));
  Powers powers;
  const bool negative = decimal.starts_with('-');
  Ref positive = positive_of(decimal.substr(negative ? 1 : 0), powers);
  return negative ? checked(PyNumber_Negative(positive.get())) : std::move(positive);
}

}  // namespace disttune::python
