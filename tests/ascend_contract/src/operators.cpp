// The operators that torch tests need.
//
// An operator is a pair of functions: XGetWorkspaceSize(arguments..., &workspace, &executor) checks
// and captures, X(workspace, size, executor, stream) queues. The caller destroys the descriptors
// right after the second call, so executors hold copies. What is absent here makes torch_npu try
// its legacy road (see aclopCompileAndExecute).
#include "contract.h"
#include "tensor.h"

#include <cmath>
#include <cstdlib>
#include <memory>
#include <random>

struct aclOpExecutor {
  std::function<void()> task;
};

using namespace contract;

namespace {

constexpr int k_bad_parameter = 161002;

using Task = std::function<void()>;  // empty: unsupported arguments
using Unary = Number (*)(Number);
using Binary = Number (*)(Number, Number);

Number identity(Number a) { return a; }
Number negate(Number a) { return a.integral ? whole(-a.integer) : real(-a.real); }
Number absolute(Number a) { return a.integral ? whole(std::abs(a.integer)) : real(fabs(a.real)); }
Number exponential(Number a) { return real(exp(a.as_real())); }
Number square_root(Number a) { return real(sqrt(a.as_real())); }
Number sine(Number a) { return real(sin(a.as_real())); }
Number cosine(Number a) { return real(cos(a.as_real())); }
Number ceiling(Number a) { return a.integral ? a : real(ceil(a.real)); }
Number sigmoid(Number a) { return real(1 / (1 + exp(-a.as_real()))); }
Number rectify(Number a) { return maximum(a, whole(0)); }
Number is_finite(Number a) { return truth(std::isfinite(a.as_real())); }
Number to_truth(Number a) { return truth(a.as_real() != 0); }
Number logical_not(Number a) { return truth(a.as_real() == 0); }
Number complement(Number a) { return whole(~a.as_integer()); }

Number divide(Number a, Number b) { return real(a.as_real() / b.as_real()); }
Number subtract_from(Number a, Number b) { return subtract(b, a); }
Number is_equal(Number a, Number b) { return truth(equal(a, b)); }
Number is_unequal(Number a, Number b) { return truth(!equal(a, b)); }
Number is_less(Number a, Number b) { return truth(less(a, b)); }
Number is_less_equal(Number a, Number b) { return truth(less(a, b) || equal(a, b)); }
Number is_greater(Number a, Number b) { return is_less(b, a); }
Number is_greater_equal(Number a, Number b) { return is_less_equal(b, a); }
Number bit_and(Number a, Number b) { return whole(a.as_integer() & b.as_integer()); }
Number bit_or(Number a, Number b) { return whole(a.as_integer() | b.as_integer()); }
Number logical_and(Number a, Number b) { return truth(a.as_real() != 0 && b.as_real() != 0); }
Number logical_or(Number a, Number b) { return truth(a.as_real() != 0 || b.as_real() != 0); }

bool same_dense_layout(const aclTensor& a, const aclTensor& b) {
  const Index dense = row_major_strides(a.shape);
  return a.type == b.type && a.shape == b.shape && a.strides == dense && b.strides == dense;
}

Task map(const aclTensor* in, const aclTensor* out, Unary function) {
  if (!supported(in, out)) return {};
  if (function == identity && same_dense_layout(*in, *out)) {
    return [a = *in, o = *out] {
      const auto bytes = static_cast<size_t>(count(o.shape)) * element_size(o.type);
      memmove(at(o, Index(o.shape.size())), at(a, Index(a.shape.size())), bytes);
    };
  }
  return [a = *in, o = *out, function] {
    for_each_index(o.shape, [&](const Index& i) { put(o, i, function(get(a, i))); });
  };
}

Task combine(const aclTensor* left, const aclTensor* right, Number scale, const aclTensor* out,
             Binary function) {
  if (!supported(left, right, out)) return {};
  return [a = *left, b = *right, o = *out, scale, function] {
    for_each_index(o.shape, [&](const Index& i) {
      put(o, i, function(get(a, i), multiply(get(b, i), scale)));
    });
  };
}

Task combine(const aclTensor* left, Number right, const aclTensor* out, Binary function) {
  if (!supported(left, out)) return {};
  return [a = *left, right, o = *out, function] {
    for_each_index(o.shape, [&](const Index& i) { put(o, i, function(get(a, i), right)); });
  };
}

// `next` yields the elements in row-major order.
template <class Next>
Task generate(const aclTensor* out, Next next) {
  if (!supported(out)) return {};
  return [o = *out, next]() mutable {
    for_each_index(o.shape, [&](const Index& i) { put(o, i, next()); });
  };
}

Task fill(const aclTensor* out, Number value) {
  return generate(out, [value] { return value; });
}

// Reduces the given axes, or all when there are none.
Task reduce(const aclTensor* in, const aclIntArray* dims, const aclTensor* out, Unary prepare,
            Binary function, Number empty, bool mean = false) {
  if (!supported(in, out)) return {};
  const bool all = dims == nullptr || dims->values.empty();
  std::vector<bool> reduced(in->shape.size(), all);
  if (!all)
    for (const int64_t dim : dims->values) reduced[static_cast<size_t>(axis(dim, *in))] = true;
  return [=, a = *in, o = *out] {
    const auto results = static_cast<size_t>(count(o.shape));
    std::vector<Number> sums(results, empty);
    std::vector<int64_t> seen(results, 0);
    for_each_index(a.shape, [&](const Index& i) {
      size_t k = 0;
      for (size_t j = 0; j < i.size(); ++j)
        if (!reduced[j]) k = k * static_cast<size_t>(a.shape[j]) + static_cast<size_t>(i[j]);
      const Number value = prepare(get(a, i));
      sums[k] = seen[k]++ == 0 ? value : function(sums[k], value);
    });
    size_t k = 0;
    for_each_index(o.shape, [&](const Index& i) {
      put(o, i, mean ? divide(sums[k], whole(seen[k])) : sums[k]);
      ++k;
    });
  };
}

int prepare(const char* name, Task task, uint64_t* workspace, aclOpExecutor** executor) {
  if (!task) return fail(k_bad_parameter, "%s: unsupported tensor", name);
  *workspace = 0;
  *executor = new aclOpExecutor{std::move(task)};
  return ACL_SUCCESS;
}

int run(aclOpExecutor* executor, aclrtStream stream) {
  const std::unique_ptr<aclOpExecutor> owned(executor);
  return enqueue(stream, std::move(owned->task));
}

std::mt19937_64 generator(uint64_t seed, uint64_t offset) {
  return std::mt19937_64(seed ^ (offset * 0x9e3779b97f4a7c15U));
}

}  // namespace

// Defines the pair; the arguments follow, and the expression that makes the task is the last one.
#define CONTRACT_UNPACK(...) __VA_ARGS__
#define CONTRACT_OPERATOR(name, parameters, ...)                                           \
  CONTRACT_API int name(void*, uint64_t, aclOpExecutor* executor, aclrtStream stream) {    \
    CONTRACT_ENTER();                                                                      \
    return run(executor, stream);                                                          \
  }                                                                                        \
  CONTRACT_API int name##GetWorkspaceSize(CONTRACT_UNPACK parameters, uint64_t* workspace, \
                                          aclOpExecutor** executor) {                      \
    return prepare(#name, __VA_ARGS__, workspace, executor);                               \
  }

#define CONTRACT_UNARY(name, function) \
  CONTRACT_OPERATOR(name, (const aclTensor* a, const aclTensor* out), map(a, out, function))
#define CONTRACT_BINARY(name, function)                                                   \
  CONTRACT_OPERATOR(name, (const aclTensor* a, const aclTensor* b, const aclTensor* out), \
                    combine(a, b, whole(1), out, function))
#define CONTRACT_WITH_SCALAR(name, function)                                              \
  CONTRACT_OPERATOR(name, (const aclTensor* a, const aclScalar* b, const aclTensor* out), \
                    combine(a, b->value, out, function))
// aclnnX, aclnnXs and their in-place forms; with a factor for the right side ("alpha") or without.
#define CONTRACT_ARITHMETIC(name, function)                                          \
  CONTRACT_BINARY(aclnn##name, function)                                             \
  CONTRACT_WITH_SCALAR(aclnn##name##s, function)                                     \
  CONTRACT_OPERATOR(aclnnInplace##name, (const aclTensor* a, const aclTensor* b),    \
                    combine(a, b, whole(1), a, function))                            \
  CONTRACT_OPERATOR(aclnnInplace##name##s, (const aclTensor* a, const aclScalar* b), \
                    combine(a, b->value, a, function))
#define CONTRACT_SCALED_SCALAR(name, function)                                                \
  CONTRACT_OPERATOR(                                                                          \
      name,                                                                                   \
      (const aclTensor* a, const aclScalar* b, const aclScalar* alpha, const aclTensor* out), \
      combine(a, multiply(b->value, alpha->value), out, function))
#define CONTRACT_SCALED_ARITHMETIC(name, function)                                            \
  CONTRACT_SCALED_SCALAR(aclnn##name##s, function)                                            \
  CONTRACT_OPERATOR(                                                                          \
      aclnn##name,                                                                            \
      (const aclTensor* a, const aclTensor* b, const aclScalar* alpha, const aclTensor* out), \
      combine(a, b, alpha->value, out, function))                                             \
  CONTRACT_OPERATOR(aclnnInplace##name,                                                       \
                    (const aclTensor* a, const aclTensor* b, const aclScalar* alpha),         \
                    combine(a, b, alpha->value, a, function))                                 \
  CONTRACT_OPERATOR(aclnnInplace##name##s,                                                    \
                    (const aclTensor* a, const aclScalar* b, const aclScalar* alpha),         \
                    combine(a, multiply(b->value, alpha->value), a, function))
#define CONTRACT_COMPARISON(name, function)      \
  CONTRACT_BINARY(aclnn##name##Tensor, function) \
  CONTRACT_WITH_SCALAR(aclnn##name##Scalar, function)

CONTRACT_SCALED_ARITHMETIC(Add, add)
CONTRACT_SCALED_ARITHMETIC(Sub, subtract)
CONTRACT_SCALED_SCALAR(aclnnRsubs, subtract_from)
CONTRACT_ARITHMETIC(Mul, multiply)
CONTRACT_ARITHMETIC(Div, divide)
CONTRACT_COMPARISON(Eq, is_equal)
CONTRACT_COMPARISON(Ne, is_unequal)
CONTRACT_COMPARISON(Lt, is_less)
CONTRACT_COMPARISON(Le, is_less_equal)
CONTRACT_COMPARISON(Gt, is_greater)
CONTRACT_COMPARISON(Ge, is_greater_equal)
CONTRACT_COMPARISON(BitwiseAnd, bit_and)
CONTRACT_COMPARISON(BitwiseOr, bit_or)
CONTRACT_BINARY(aclnnMaximum, maximum)
CONTRACT_BINARY(aclnnMinimum, minimum)
CONTRACT_BINARY(aclnnLogicalAnd, logical_and)
CONTRACT_BINARY(aclnnLogicalOr, logical_or)
CONTRACT_UNARY(aclnnNeg, negate)
CONTRACT_UNARY(aclnnAbs, absolute)
CONTRACT_UNARY(aclnnExp, exponential)
CONTRACT_UNARY(aclnnSqrt, square_root)
CONTRACT_UNARY(aclnnSin, sine)
CONTRACT_UNARY(aclnnCos, cosine)
CONTRACT_UNARY(aclnnCeil, ceiling)
CONTRACT_UNARY(aclnnSigmoid, sigmoid)
CONTRACT_UNARY(aclnnRelu, rectify)
CONTRACT_UNARY(aclnnIsFinite, is_finite)
CONTRACT_UNARY(aclnnLogicalNot, logical_not)
CONTRACT_UNARY(aclnnBitwiseNot, (a->type == ACL_BOOL ? logical_not : complement))

CONTRACT_OPERATOR(aclnnCast, (const aclTensor* a, aclDataType, const aclTensor* out),
                  map(a, out, identity))
CONTRACT_OPERATOR(aclnnInplaceCopy, (const aclTensor* to, const aclTensor* from),
                  map(from, to, identity))
CONTRACT_OPERATOR(aclnnInplaceFillTensor, (const aclTensor* to, const aclTensor* value),
                  map(value, to, identity))
CONTRACT_OPERATOR(aclnnInplaceFillScalar, (const aclTensor* to, const aclScalar* value),
                  fill(to, value->value))
CONTRACT_OPERATOR(aclnnInplaceZero, (const aclTensor* to), fill(to, whole(0)))
CONTRACT_OPERATOR(aclnnInplaceOne, (const aclTensor* to), fill(to, whole(1)))

CONTRACT_OPERATOR(aclnnArange,
                  (const aclScalar* start, const aclScalar*, const aclScalar* step,
                   const aclTensor* out),
                  generate(out,
                           [first = start->value, step = step->value, k = int64_t{0}]() mutable {
                             return add(first, multiply(whole(k++), step));
                           }))
CONTRACT_OPERATOR(aclnnInplaceUniform,
                  (const aclTensor* to, double low, double high, uint64_t seed, uint64_t offset),
                  generate(to, [random = generator(seed, offset),
                                uniform = std::uniform_real_distribution(low, high)]() mutable {
                    return real(uniform(random));
                  }))
CONTRACT_OPERATOR(
    aclnnInplaceNormal,
    (const aclTensor* to, float mean, float deviation, int64_t seed, int64_t offset),
    generate(to, [random = generator(static_cast<uint64_t>(seed), static_cast<uint64_t>(offset)),
                  normal = std::normal_distribution<double>(mean, deviation)]() mutable {
      return real(normal(random));
    }))

CONTRACT_OPERATOR(aclnnReduceSum,
                  (const aclTensor* a, const aclIntArray* dims, bool, aclDataType,
                   const aclTensor* out),
                  reduce(a, dims, out, identity, add, whole(0)))
CONTRACT_OPERATOR(aclnnMean,
                  (const aclTensor* a, const aclIntArray* dims, bool, aclDataType,
                   const aclTensor* out),
                  reduce(a, dims, out, identity, add, whole(0), true))
CONTRACT_OPERATOR(aclnnMax, (const aclTensor* a, const aclTensor* out),
                  reduce(a, nullptr, out, identity, maximum, whole(0)))
CONTRACT_OPERATOR(aclnnMin, (const aclTensor* a, const aclTensor* out),
                  reduce(a, nullptr, out, identity, minimum, whole(0)))
CONTRACT_OPERATOR(aclnnAll,
                  (const aclTensor* a, const aclIntArray* dims, bool, const aclTensor* out),
                  reduce(a, dims, out, to_truth, bit_and, whole(1)))
CONTRACT_OPERATOR(aclnnAny,
                  (const aclTensor* a, const aclIntArray* dims, bool, const aclTensor* out),
                  reduce(a, dims, out, to_truth, bit_or, whole(0)))

namespace {

Task all_equal(const aclTensor* left, const aclTensor* right, const aclTensor* out) {
  if (!supported(left, right, out)) return {};
  return [a = *left, b = *right, o = *out] {
    bool same = a.shape == b.shape;
    if (same)
      for_each_index(a.shape, [&](const Index& i) { same = same && equal(get(a, i), get(b, i)); });
    put(o, Index(o.shape.size()), truth(same));
  };
}

Task is_close(const aclTensor* left, const aclTensor* right, double relative, double absolute,
              bool equal_nan, const aclTensor* out) {
  if (!supported(left, right, out)) return {};
  return [=, a = *left, b = *right, o = *out] {
    for_each_index(o.shape, [&](const Index& i) {
      const double x = get(a, i).as_real();
      const double y = get(b, i).as_real();
      const bool both_nan = equal_nan && std::isnan(x) && std::isnan(y);
      const bool near = std::isfinite(y) && fabs(x - y) <= absolute + relative * fabs(y);
      put(o, i, truth(x == y || both_nan || near));
    });
  };
}

Task matrix_product(const aclTensor* left, const aclTensor* right, const aclTensor* out) {
  if (!supported(left, right, out) || left->shape.size() != 2 || right->shape.size() != 2)
    return {};
  return [a = *left, b = *right, o = *out] {
    for_each_index(o.shape, [&](const Index& i) {
      double sum = 0;
      for (int64_t k = 0; k < a.shape[1]; ++k)
        sum += get(a, {i[0], k}).as_real() * get(b, {k, i[1]}).as_real();
      put(o, i, real(sum));
    });
  };
}

Task concatenate(const aclTensorList* list, int64_t dim, const aclTensor* out) {
  if (!supported(out)) return {};
  std::vector<aclTensor> parts;
  for (const aclTensor* tensor : list->tensors) parts.push_back(*tensor);
  return [parts, o = *out, d = static_cast<size_t>(axis(dim, *out))] {
    int64_t first = 0;
    for (const aclTensor& part : parts) {
      for_each_index(part.shape, [&](const Index& i) {
        Index to = i;
        to[d] += first;
        put(o, to, get(part, i));
      });
      first += part.shape[d];
    }
  };
}

Task select(const aclTensor* in, int64_t dim, const aclTensor* which, const aclTensor* out) {
  if (!supported(in, which, out)) return {};
  return [a = *in, w = *which, o = *out, d = static_cast<size_t>(axis(dim, *in))] {
    for_each_index(o.shape, [&](const Index& i) {
      Index from = i;
      from[d] = get(w, {i[d]}).as_integer();
      put(o, i, get(a, from));
    });
  };
}

// The shape depends on the data: the true count goes into the caller's output descriptor.
Task select_where(const aclTensor* in, const aclTensor* mask, aclTensor* out) {
  if (!supported(in, mask, out) || in->shape != mask->shape) return {};
  return [a = *in, m = *mask, out] {
    int64_t kept = 0;
    for_each_index(a.shape, [&](const Index& i) {
      if (get(m, i).as_integer() != 0) put(*out, {kept++}, get(a, i));
    });
    out->shape.assign(1, kept);
  };
}

// `pad` holds (before, after) pairs, the last axis first.
Task pad_with(const aclTensor* in, const aclIntArray* pad, Number value, const aclTensor* out) {
  if (!supported(in, out)) return {};
  return [a = *in, o = *out, pads = pad->values, value] {
    const size_t rank = o.shape.size();
    for_each_index(o.shape, [&](const Index& i) {
      Index from = i;
      bool inside = true;
      for (size_t j = 0; j < rank; ++j) {
        const size_t before = 2 * (rank - 1 - j);
        if (before < pads.size()) from[j] -= pads[before];
        inside = inside && from[j] >= 0 && from[j] < a.shape[j];
      }
      put(o, i, inside ? get(a, from) : value);
    });
  };
}

}  // namespace

CONTRACT_OPERATOR(aclnnEqual, (const aclTensor* a, const aclTensor* b, const aclTensor* out),
                  all_equal(a, b, out))
CONTRACT_OPERATOR(aclnnIsClose,
                  (const aclTensor* a, const aclTensor* b, double relative, double absolute,
                   bool equal_nan, const aclTensor* out),
                  is_close(a, b, relative, absolute, equal_nan, out))
CONTRACT_OPERATOR(aclnnMm, (const aclTensor* a, const aclTensor* b, const aclTensor* out, int8_t),
                  matrix_product(a, b, out))
CONTRACT_OPERATOR(aclnnMatmul,
                  (const aclTensor* a, const aclTensor* b, const aclTensor* out, int8_t),
                  matrix_product(a, b, out))
CONTRACT_OPERATOR(aclnnCat, (const aclTensorList* list, int64_t dim, const aclTensor* out),
                  concatenate(list, dim, out))
CONTRACT_OPERATOR(aclnnIndexSelect,
                  (const aclTensor* a, int64_t dim, const aclTensor* which, const aclTensor* out),
                  select(a, dim, which, out))
CONTRACT_OPERATOR(aclnnMaskedSelect, (const aclTensor* a, const aclTensor* mask, aclTensor* out),
                  select_where(a, mask, out))
CONTRACT_OPERATOR(aclnnConstantPadNd,
                  (const aclTensor* a, const aclIntArray* pad, const aclScalar* value,
                   const aclTensor* out),
                  pad_with(a, pad, value->value, out))
