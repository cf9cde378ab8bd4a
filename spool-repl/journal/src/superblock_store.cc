#include "twinloft/spool-repl/journal/superblock_store.h"

#include "twinloft/spool-repl/journal/aligned.h"

namespace twinloft::repl::journal {

namespace {
Status store_copy(ports::BlockFile& journal, const Superblock& sb, int copy) {
  AlignedBuffer block(block_size);
  encode_superblock(sb, block.span());
  TL_TRY(journal.write(superblock_offset[copy], block.span()));
  return journal.sync();
}
}  // namespace

Status store_superblock(ports::BlockFile& journal, const Superblock& sb) {
  TL_TRY(store_copy(journal, sb, 0));
  return store_copy(journal, sb, 1);
}

Result<SuperblockCopies> read_superblock(ports::BlockFile& journal) {
  if (journal.size_bytes() < journal_reserved_bytes)
    return fail(Errc::not_found, "{}: too small to be a journal", journal.name());
  Result<Superblock> copies[2] = {fail(Errc::not_found, ""), fail(Errc::not_found, "")};
  AlignedBuffer block(block_size);
  for (int i = 0; i < 2; ++i) {
    Status read = journal.read(superblock_offset[i], block.span());
    if (read)
      copies[i] = decode_superblock(block.span());
    else
      copies[i] = std::unexpected(read.error());
  }
  // Also if the other copy is older: the release that was writing this copy can continue from it.
  for (const auto& c : copies)
    if (!c && c.error().code == Errc::invalid) return std::unexpected(c.error());
  if (!copies[0] && !copies[1]) {
    if (copies[0].error().code == Errc::not_found && copies[1].error().code == Errc::not_found)
      return fail(
          Errc::not_found,
          "{}: no superblock: this is not the journal of a volume. Correct `journal`, or run `create`",
          journal.name());
    return fail(Errc::corrupt,
                "{}: both copies of the superblock are damaged ({}; {}). Nothing was changed. "
                "Restore this replica from its peer",
                journal.name(), copies[0].error().message, copies[1].error().message);
  }
  int best = !copies[0] ? 1 : !copies[1] ? 0 : copies[1]->generation > copies[0]->generation ? 1 : 0;
  const auto& other = copies[1 - best];
  return SuperblockCopies{*copies[best], best, other.has_value(), other && *other == *copies[best]};
}

Result<LoadedSuperblock> load_superblock(ports::BlockFile& journal) {
  TL_TRY_ASSIGN(SuperblockCopies found, read_superblock(journal));
  // A change takes effect only once both copies are durable, so each copy is a safe state.
  if (!found.copies_agree) TL_TRY(store_copy(journal, found.superblock, 1 - found.newest));
  return LoadedSuperblock{found.superblock, !found.other_readable};
}

}  // namespace twinloft::repl::journal
