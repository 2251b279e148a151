// The descriptor objects of the operator interface and access to the elements of a tensor.
#pragma once

#include "element.h"

#include <functional>
#include <numeric>
#include <vector>

using Index = std::vector<int64_t>;

struct aclTensor {
  Index shape;
  Index strides;
  int64_t offset;
  aclDataType type;
  void* base;
};
struct aclScalar {
  contract::Number value;
};
struct aclIntArray {
  Index values;
};
struct aclTensorList {
  std::vector<const aclTensor*> tensors;
};

namespace contract {

template <class... Tensors>
bool supported(const Tensors*... tensors) {
  return ((tensors != nullptr && element_size(tensors->type) != 0) && ...);
}

inline int64_t count(const Index& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

inline int64_t axis(int64_t dim, const aclTensor& tensor) {
  return dim < 0 ? dim + static_cast<int64_t>(tensor.shape.size()) : dim;
}

// Address of an element; the index is aligned to the right and axes of extent 1 are broadcast.
inline char* at(const aclTensor& tensor, const Index& index) {
  int64_t offset = tensor.offset;
  const size_t skipped = index.size() - tensor.shape.size();
  for (size_t j = 0; j < tensor.shape.size(); ++j)
    if (tensor.shape[j] != 1) offset += index[skipped + j] * tensor.strides[j];
  return static_cast<char*>(tensor.base) + offset * static_cast<int64_t>(element_size(tensor.type));
}

inline Number get(const aclTensor& tensor, const Index& index) {
  return load(at(tensor, index), tensor.type);
}
inline void put(const aclTensor& tensor, const Index& index, Number value) {
  store(at(tensor, index), tensor.type, value);
}

// Calls visit(index) for every index of the shape, in row-major order.
template <class Visit>
void for_each_index(const Index& shape, Visit visit) {
  Index index(shape.size(), 0);
  for (int64_t left = count(shape); left > 0; --left) {
    visit(index);
    for (size_t j = shape.size(); j-- > 0;) {
      if (++index[j] < shape[j]) break;
      index[j] = 0;
    }
  }
}

inline Index row_major_strides(const Index& shape) {
  Index strides(shape.size());
  int64_t stride = 1;
  for (size_t j = shape.size(); j-- > 0;) {
    strides[j] = stride;
    stride *= shape[j];
  }
  return strides;
}

}  // namespace contract
