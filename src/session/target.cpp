#include "session/target.hpp"

#include <utility>

#include "agree/agreement.hpp"
#include "session/process.hpp"

namespace disttune::session {
namespace {

RecordKey record_key(detail::LauncherState& launcher, const detail::Call& call,
                     const Settings& settings, const Device& device) {
  RecordKey key;
  key.identity = launcher.identity();
  key.key = call.key;
  key.hardware = device.fingerprint();
  key.policy = settings.policy(device);
  key.overwritten = call.overwritten;
  return key;
}

Stream with_device(Stream stream) { return stream.device ? std::move(stream) : host(); }

}  // namespace

Target::Target(detail::LauncherState& l, const detail::Call& c, const Defaults& defaults)
    : launcher(l),
      call(c),
      settings(settings_of(l.spec.options, defaults)),
      stream(with_device(c.stream)),
      store(settings.store(l.spec.options)),
      key(record_key(l, c, settings, *stream.device)),
      deps(software_of(*stream.device)) {}

void Target::fill_in_known_group() {
  if (call.group == nullptr || call.group->size() == 1) return;
  if (const auto shape = agree::known_shape(*call.group)) key.group = *shape;
}

Value Target::journal_policy() const {
  return Value::tuple({Value(settings.strategy), Value(settings.warmup), Value(settings.repeat),
                       Value(settings.checked), deps});
}

store::Remains Target::remains() const {
  if (!store.root()) return {};
  return store::read_remains(store.file(launcher.spec.name, key), key.text(), journal_policy());
}

}  // namespace disttune::session
