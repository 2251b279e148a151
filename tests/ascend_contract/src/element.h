// One element of any data type as a number: what operators and reductions compute with. Slow and
// plain; integers stay exact (unsigned 64-bit ones up to 2^63).
#pragma once

#include <acl/acl.h>

#include <cstdint>
#include <cstring>

namespace contract {

struct Number {
  bool integral;
  double real;
  int64_t integer;
  double as_real() const { return integral ? static_cast<double>(integer) : real; }
  int64_t as_integer() const { return integral ? integer : static_cast<int64_t>(real); }
};

inline Number whole(int64_t value) { return {true, 0, value}; }
inline Number real(double value) { return {false, value, 0}; }
inline Number truth(bool value) { return whole(value ? 1 : 0); }

/// Bytes of an element; 0 for types that the contract library does not compute with.
inline size_t element_size(aclDataType type) {
  switch (type) {
    case ACL_INT8:
    case ACL_UINT8:
    case ACL_BOOL:
      return 1;
    case ACL_INT16:
    case ACL_UINT16:
    case ACL_FLOAT16:
    case ACL_BF16:
      return 2;
    case ACL_INT32:
    case ACL_UINT32:
    case ACL_FLOAT:
      return 4;
    case ACL_INT64:
    case ACL_UINT64:
    case ACL_DOUBLE:
      return 8;
    default:
      return 0;
  }
}

template <class T>
T read_as(const void* address) {
  T value;
  memcpy(&value, address, sizeof value);
  return value;
}

template <class T>
void write_as(void* address, T value) {
  memcpy(address, &value, sizeof value);
}

inline float bfloat_to_float(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  return read_as<float>(&wide);
}

inline uint16_t float_to_bfloat(float value) {
  if (value != value) return 0x7fc0;
  const auto bits = read_as<uint32_t>(&value);
  const uint32_t to_nearest_even = 0x7fff + ((bits >> 16) & 1);
  return static_cast<uint16_t>((bits + to_nearest_even) >> 16);
}

inline Number load(const void* address, aclDataType type) {
  switch (type) {
    case ACL_FLOAT:
      return real(read_as<float>(address));
    case ACL_DOUBLE:
      return real(read_as<double>(address));
    case ACL_FLOAT16:
      return real(static_cast<float>(read_as<_Float16>(address)));
    case ACL_BF16:
      return real(bfloat_to_float(read_as<uint16_t>(address)));
    case ACL_BOOL:
      return truth(read_as<uint8_t>(address) != 0);
    case ACL_INT8:
      return whole(read_as<int8_t>(address));
    case ACL_UINT8:
      return whole(read_as<uint8_t>(address));
    case ACL_INT16:
      return whole(read_as<int16_t>(address));
    case ACL_UINT16:
      return whole(read_as<uint16_t>(address));
    case ACL_INT32:
      return whole(read_as<int32_t>(address));
    case ACL_UINT32:
      return whole(read_as<uint32_t>(address));
    default:
      return whole(read_as<int64_t>(address));
  }
}

inline void store(void* address, aclDataType type, Number value) {
  switch (type) {
    case ACL_FLOAT:
      return write_as(address, static_cast<float>(value.as_real()));
    case ACL_DOUBLE:
      return write_as(address, value.as_real());
    case ACL_FLOAT16:
      return write_as(address, static_cast<_Float16>(value.as_real()));
    case ACL_BF16:
      return write_as(address, float_to_bfloat(static_cast<float>(value.as_real())));
    case ACL_BOOL:
      return write_as(address, static_cast<uint8_t>(value.as_real() != 0));
    default:
      break;
  }
  // Little endian: the low bytes are the narrower integer, wrapped around as the device does.
  const int64_t integer = value.as_integer();
  memcpy(address, &integer, element_size(type));
}

inline bool both_integral(Number a, Number b) { return a.integral && b.integral; }

inline Number add(Number a, Number b) {
  return both_integral(a, b) ? whole(a.integer + b.integer) : real(a.as_real() + b.as_real());
}
inline Number subtract(Number a, Number b) {
  return both_integral(a, b) ? whole(a.integer - b.integer) : real(a.as_real() - b.as_real());
}
inline Number multiply(Number a, Number b) {
  return both_integral(a, b) ? whole(a.integer * b.integer) : real(a.as_real() * b.as_real());
}
inline bool less(Number a, Number b) {
  return both_integral(a, b) ? a.integer < b.integer : a.as_real() < b.as_real();
}
inline bool equal(Number a, Number b) {
  return both_integral(a, b) ? a.integer == b.integer : a.as_real() == b.as_real();
}
// A NaN on either side is the result, as in torch.
inline bool is_nan(Number a) { return !a.integral && a.real != a.real; }
inline Number maximum(Number a, Number b) { return is_nan(a) || less(b, a) ? a : b; }
inline Number minimum(Number a, Number b) { return is_nan(a) || less(a, b) ? a : b; }

}  // namespace contract
