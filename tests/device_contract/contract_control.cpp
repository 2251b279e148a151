// What tests ask of a contract library, whichever driver it stands for.
#include <string>

#include "device_contract/gpu_model.hpp"

using contract::Command;
using contract::model;

namespace {

int queue(void* stream, Command::Kind kind, std::int64_t duration, int code, std::uint64_t number) {
  const std::lock_guard lock(model().mutex);
  Command c;
  c.kind = kind;
  c.duration = duration;
  c.code = code;
  c.number = number;
  return model().queue(stream, std::move(c));
}

}  // namespace

CONTRACT_EXPORT void contract_reset() {
  const std::lock_guard lock(model().mutex);
  model().reset();
}
/// The host's clock moves on.
CONTRACT_EXPORT void contract_advance(std::int64_t ns) {
  const std::lock_guard lock(model().mutex);
  model().pump();
  model().host_now += ns;
  model().pump();
}
CONTRACT_EXPORT int contract_kernel(void* stream, std::int64_t ns) {
  return queue(stream, Command::kernel, ns, 0, 0);
}
/// Work that ends only with contract_end_hangs.
CONTRACT_EXPORT int contract_hang(void* stream) {
  return queue(stream, Command::hang, 0, 0, model().hangs_released + 1);
}
CONTRACT_EXPORT void contract_end_hangs() {
  const std::lock_guard lock(model().mutex);
  ++model().hangs_released;
  model().pump();
}
/// A kernel that ruins its context with a sticky code.
CONTRACT_EXPORT int contract_fault(void* stream, int code) {
  return queue(stream, Command::fault, 0, code, 0);
}
/// After `after` more calls of `name` that pass, one returns `code` and does nothing.
CONTRACT_EXPORT void contract_fail_next(const char* name, int code, int after) {
  const std::lock_guard lock(model().mutex);
  model().injected[name] = {code, after};
}
/// Pinned memory goes with its context.
CONTRACT_EXPORT void contract_lose_host_memory() {
  const std::lock_guard lock(model().mutex);
  model().lose_host_memory();
}
CONTRACT_EXPORT void contract_set(const char* name, std::int64_t value) {
  const std::lock_guard lock(model().mutex);
  model().settings[name] = value;
}
CONTRACT_EXPORT std::int64_t contract_get(const char* name) {
  const std::lock_guard lock(model().mutex);
  return model().settings[name];
}
/// Every elapsed time reads as this.
CONTRACT_EXPORT void contract_force_elapsed(float milliseconds) {
  const std::lock_guard lock(model().mutex);
  model().force_elapsed = true;
  model().forced_elapsed = milliseconds;
}
CONTRACT_EXPORT int contract_calls(const char* name) {
  const std::lock_guard lock(model().mutex);
  return model().calls[name];
}
CONTRACT_EXPORT const char* contract_misuse() {
  static thread_local std::string text;
  const std::lock_guard lock(model().mutex);
  text = model().misuse_text();
  return text.c_str();
}
CONTRACT_EXPORT const char* contract_live() {
  static thread_local std::string text;
  const std::lock_guard lock(model().mutex);
  text = model().live();
  return text.c_str();
}
CONTRACT_EXPORT void* contract_create_stream(int device) {
  const std::lock_guard lock(model().mutex);
  void* stream = nullptr;
  model().create_stream(model().primary(device), &stream);
  return stream;
}
CONTRACT_EXPORT void contract_destroy_stream(void* stream) {
  const std::lock_guard lock(model().mutex);
  model().destroy_stream(stream);
}
/// The calling thread's context becomes the device's; a negative device: none.
CONTRACT_EXPORT void contract_make_current(int device) {
  const std::lock_guard lock(model().mutex);
  contract::Model::current.clear();
  if (device >= 0) contract::Model::current.push_back(model().primary(device));
}
/// The calling thread's device, -1 without one; more than one context on its stack: -2.
CONTRACT_EXPORT int contract_current() {
  const std::lock_guard lock(model().mutex);
  const auto& stack = contract::Model::current;
  if (stack.size() > 1) return -2;
  return stack.empty() ? -1 : model().contexts.at(stack.back()).device;
}
/// A capture of the caller's own.
CONTRACT_EXPORT int contract_begin_capture(void* stream) {
  const std::lock_guard lock(model().mutex);
  return model().begin_capture(stream);
}
/// 1: the capture is intact.
CONTRACT_EXPORT int contract_capture_state(void* stream) {
  const std::lock_guard lock(model().mutex);
  const auto found = model().streams.find(stream);
  return found == model().streams.end() ? -1 : found->second.capture;
}
