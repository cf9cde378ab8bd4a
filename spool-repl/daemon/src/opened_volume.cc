#include "opened_volume.h"

#include "core_settings.h"
#include "memory_bound.h"

namespace twinloft::repl::daemon {

namespace {

// The spill is a cache, so a volume starts without it.
std::vector<SpillChunk> open_spill(const VolumeSettings& settings, OpenedVolume& v,
                                   const StartEvent& happened) {
  if (settings.spill.empty()) return {};
  auto spill = SpillDirectory::open(settings);
  if (!spill) {
    happened("spill",
             fmt::format("{}. Far replicas may lag by half of the journal only", spill.error().message),
             true);
    return {};
  }
  v.spill = std::move(*spill);
  auto chunks = v.spill->find(v.superblock.volume, v.superblock.replica);
  v.spill->drop_others(chunks);
  return chunks;
}

}  // namespace

Result<std::unique_ptr<OpenedVolume>> OpenedVolume::open(const VolumeSettings& settings, Storage storage,
                                                         Random& random, const StartEvent& happened,
                                                         std::shared_ptr<core::LinkMemory> link_memory) {
  auto v = std::make_unique<OpenedVolume>();
  v->storage = std::move(storage);
  core::Config config = core_config(settings);
  if (settings.arena < arena_bytes_min(settings))
    return fail(Errc::invalid, "volume.{}.arena: {} MiB is too small: at least {} MiB are needed",
                settings.name, settings.arena >> 20, arena_bytes_min(settings) >> 20);
  TL_TRY(fits_memory(settings));
  TL_TRY(v->arena_memory.map(settings.arena / block_size * block_size));
  TL_TRY(v->read_memory.map(read_memory_bytes));
  MutableByteSpan memory = v->arena_memory.span();
  std::size_t room = core::recovery_blocks(config, memory.size() / block_size) * block_size;
  TL_TRY_ASSIGN(RecoveredLog log, replay(settings, v->storage, memory.first(room), happened));
  v->superblock = log.superblock;
  v->was_primary = last_writer(log) == log.superblock.replica;
  v->arena = std::make_unique<core::Arena>(memory);
  v->reads = std::make_unique<core::Arena>(v->read_memory.span());
  std::vector<SpillChunk> chunks = open_spill(settings, *v, happened);
  config.spill = v->spill.has_value();
  config.link_memory = std::move(link_memory);
  TL_TRY_ASSIGN(v->core, core::Core::create(config, std::move(log), *v->arena, *v->reads, random, chunks));
  return v;
}

}  // namespace twinloft::repl::daemon
