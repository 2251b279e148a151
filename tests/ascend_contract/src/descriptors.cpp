// Creation and destruction of the descriptor objects that operators take.
#include "contract.h"
#include "tensor.h"

#include <cstdlib>

using namespace contract;

CONTRACT_API aclTensor* aclCreateTensor(const int64_t* shape, uint64_t rank, aclDataType type,
                                        const int64_t* strides, int64_t offset, aclFormat,
                                        const int64_t*, uint64_t, void* base) {
  auto* tensor = new aclTensor{{shape, shape + rank}, {}, offset, type, base};
  tensor->strides =
      strides != nullptr ? Index(strides, strides + rank) : row_major_strides(tensor->shape);
  return tensor;
}

CONTRACT_API aclScalar* aclCreateScalar(void* value, aclDataType type) {
  return element_size(type) == 0 ? nullptr : new aclScalar{load(value, type)};
}

CONTRACT_API aclIntArray* aclCreateIntArray(const int64_t* values, uint64_t size) {
  return new aclIntArray{{values, values + size}};
}
CONTRACT_API aclTensorList* aclCreateTensorList(const aclTensor* const* tensors, uint64_t size) {
  return new aclTensorList{{tensors, tensors + size}};
}
#define CONTRACT_DESTROY(type)                                 \
  CONTRACT_API int aclDestroy##type(const acl##type* object) { \
    delete object;                                             \
    return ACL_SUCCESS;                                        \
  }
CONTRACT_DESTROY(Tensor)
CONTRACT_DESTROY(Scalar)
CONTRACT_DESTROY(IntArray)

// A list owns its members.
CONTRACT_API int aclDestroyTensorList(const aclTensorList* list) {
  if (list != nullptr)
    for (const aclTensor* tensor : list->tensors) delete tensor;
  delete list;
  return ACL_SUCCESS;
}

CONTRACT_API int aclGetViewShape(const aclTensor* tensor, int64_t** shape, uint64_t* rank) {
  *rank = tensor->shape.size();
  const size_t bytes = *rank * sizeof(int64_t);
  *shape = static_cast<int64_t*>(malloc(bytes + 1));  // the caller frees; + 1: never null
  memcpy(*shape, tensor->shape.data(), bytes);
  return ACL_SUCCESS;
}
