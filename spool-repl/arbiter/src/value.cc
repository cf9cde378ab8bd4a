#include "twinloft/spool-repl/arbiter/value.h"

#include "twinloft/base/json.h"

namespace twinloft::repl::arbiter {

namespace {

constexpr std::string_view format_name = "twinloft-epoch";
constexpr std::uint64_t version_max = 1'000'000'000;

std::unexpected<Error> wrong(const std::string& what) {
  return fail(Errc::corrupt, "the arbiter's value is not one of Twinloft's: {} (docs/formats/arbiter.md)",
              what);
}

Result<Uuid> id_of(const json::object& o, std::string_view key) {
  const json::value* v = o.if_contains(key);
  if (!v || !v->is_string()) return wrong(fmt::format("no text \"{}\"", key));
  auto id = Uuid::parse(std::string_view(v->get_string()));
  if (!id || id->is_nil()) return wrong(fmt::format("\"{}\" is no UUID", key));
  return *id;
}

Result<std::uint64_t> number_of(const json::object& o, std::string_view key, std::uint64_t high) {
  const json::value* v = o.if_contains(key);
  auto n = v ? unsigned_of(*v) : std::nullopt;
  if (!n || *n == 0 || *n > high) return wrong(fmt::format("\"{}\" is not a number from 1 to {}", key, high));
  return *n;
}

Result<ReplicaSet> set_in(const json::object& o) {
  const json::value* v = o.if_contains("in_sync");
  if (!v || !v->is_array()) return wrong("no list \"in_sync\"");
  ReplicaSet set = 0;
  for (const json::value& member : v->get_array()) {
    auto id = unsigned_of(member);
    if (!id || *id == 0 || *id > replica_id_max)
      return wrong(
          fmt::format("\"in_sync\" has a member that is not a replica from 1 to {}", replica_id_max));
    set |= set_of(static_cast<ReplicaId>(*id));
  }
  return set;
}

Result<core::EpochValue> value_in(const json::object& o) {
  core::EpochValue value;
  const json::value* epoch = o.if_contains("epoch");
  if (!epoch || !epoch->is_object()) return wrong("no \"epoch\"");
  TL_TRY_ASSIGN(value.epoch.counter, number_of(epoch->get_object(), "counter", epoch_counter_max));
  TL_TRY_ASSIGN(value.epoch.id, id_of(epoch->get_object(), "id"));
  TL_TRY_ASSIGN(std::uint64_t writer, number_of(o, "writer", replica_id_max));
  value.writer = static_cast<ReplicaId>(writer);
  TL_TRY_ASSIGN(value.in_sync, set_in(o));
  if (!(value.in_sync & set_of(value.writer))) return wrong("its writer is not in sync");
  TL_TRY_ASSIGN(value.attempt, id_of(o, "attempt"));
  if (const json::value* forced = o.if_contains("by_force")) {
    if (!forced->is_bool()) return wrong("\"by_force\" is neither true nor false");
    value.by_force = forced->get_bool();
  }
  return value;
}

}  // namespace

std::string encode_value(const Uuid& volume, const core::EpochValue& value) {
  std::string members;
  for (ReplicaId id = 1; id <= replica_id_max; ++id)
    if (value.in_sync & set_of(id)) members += fmt::format("{}{}", members.empty() ? "" : ",", id);
  return fmt::format(
      R"({{"format":"{}","version":{},"volume":"{}","epoch":{{"counter":{},"id":"{}"}},"writer":{},)"
      R"("in_sync":[{}],"attempt":"{}"{}}})",
      format_name, value_version, volume.text(), value.epoch.counter, value.epoch.id.text(), value.writer,
      members, value.attempt.text(), value.by_force ? R"(,"by_force":true)" : "");
}

Result<core::EpochValue> decode_value(const Uuid& volume, std::string_view text) {
  if (text.size() > value_bytes_max) return wrong(fmt::format("it has {} bytes", text.size()));
  auto root = parse_object(text);
  if (!root) return wrong(root.error().message);
  const json::value* format = root->if_contains("format");
  if (!format || !format->is_string() || std::string_view(format->get_string()) != format_name)
    return wrong(fmt::format("no \"format\":\"{}\"", format_name));
  TL_TRY_ASSIGN(std::uint64_t version, number_of(*root, "version", version_max));
  if (version != value_version)
    return fail(Errc::corrupt,
                "the arbiter's value is in version {} of its format, this program knows version {}: install "
                "the release of the other machines on this machine",
                version, value_version);
  TL_TRY_ASSIGN(Uuid of, id_of(*root, "volume"));
  if (of != volume)
    return fail(
        Errc::conflict,
        "the arbiter's value is of volume {}, this volume is {}: the key was copied, or the uuid is wrong",
        of.text(), volume.text());
  TL_TRY_ASSIGN(core::EpochValue value, value_in(*root));
  // The comparison needs equal bytes for equal values: no further field, no repeated field, no other order.
  if (encode_value(volume, value) != text) return wrong("it is not in the exact form that spool-repl writes");
  return value;
}

}  // namespace twinloft::repl::arbiter
