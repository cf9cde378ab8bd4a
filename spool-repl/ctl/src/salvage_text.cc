#include "salvage_text.h"

#include <fmt/format.h>

#include <set>

#include "twinloft/base/json.h"
#include "twinloft/spool-repl/salvage/printable.h"

namespace twinloft::repl::ctl {

namespace {

using salvage::Fate;
using salvage::Message;
using salvage::printable;

struct FateText {
  Fate fate;
  const char* text;
};
constexpr FateText fate_texts[] = {
    {Fate::delivered, "delivered"},
    {Fate::would_deliver, "would be delivered"},
    {Fate::already_there, "there already"},
    {Fate::done_before, "done by an earlier run"},
    {Fate::copy_of_another, "copies of others in the bundle"},
    {Fate::left_deleted,
     "left: may have been on their way at the parting, and the winner had them and deleted them"},
    {Fate::left_uncertain, "left: may have been on their way at the parting (--certain)"},
    {Fate::deferred, "deferred by the server"},
    {Fate::refused, "refused by the server"},
    {Fate::unknown, "handed over without a reply: the next run looks whether they are there"},
    {Fate::failed, "failed"},
    {Fate::not_tried, "not tried"},
};
static_assert(std::size(fate_texts) == salvage::fates);

std::string place(const Message& m) {
  return fmt::format("{}{}/{}", m.folder.empty() ? "" : m.folder + "/", m.in_new ? "new" : "cur", m.name);
}

// LMTP has neither folders nor flags.
bool loses_its_place(const DeliveryReport& shown, std::size_t i) {
  const Message& m = shown.manifest.messages[shown.report.messages[i].message];
  Fate fate = shown.report.messages[i].fate;
  return shown.by_lmtp && (fate == Fate::delivered || fate == Fate::would_deliver) &&
         (!m.folder.empty() || !m.in_new);
}

std::uint64_t count_moved(const DeliveryReport& shown) {
  std::uint64_t out = 0;
  for (std::size_t i = 0; i < shown.report.messages.size(); ++i) out += loses_its_place(shown, i);
  return out;
}

bool wants_attention(Fate fate) {
  return salvage::is_open(fate) || fate == Fate::left_deleted;
}

}  // namespace

std::string delivery_text(const DeliveryReport& shown, bool all) {
  const salvage::Manifest& m = shown.manifest;
  std::set<std::string> users;
  for (const Message& message : m.messages) users.insert(message.maildir);
  std::string out = fmt::format(
      "{}: {} messages of {} users, of replica {} of volume {}, from behind LSN {}{}\n", shown.bundle,
      m.messages.size(), users.size(), m.parting.loser, m.volume.text(), m.parting.lsn,
      shown.dry_run ? "; a dry run, nothing was changed" : "");
  for (const FateText& f : fate_texts)
    if (std::uint64_t n = shown.report.count(f.fate); n > 0) out += fmt::format("{:>9} {}\n", n, f.text);
  if (std::uint64_t moved = count_moved(shown); moved > 0)
    out += fmt::format(
        "{} of them were in a folder, or had been seen: LMTP puts them into the inbox as new mail\n", moved);
  for (const salvage::MessageFate& f : shown.report.messages)
    if (const Message& message = m.messages[f.message]; all || wants_attention(f.fate))
      out += fmt::format("{}: message {}, {} {}{}\n", salvage::to_string(f.fate), message.number,
                         printable(message.user), printable(place(message)),
                         f.detail.empty() ? "" : ": " + printable(f.detail));
  if (!m.problems.empty())
    out += fmt::format(
        "{} problems at the extraction: mail may be missing from the bundle; its report and the manifest "
        "name them{}\n",
        m.problems.size(), shown.problems_accepted ? " (--accept-problems)" : "");
  for (const std::string& note : shown.report.notes) out += "note: " + note + "\n";
  return out;
}

std::string delivery_json(const DeliveryReport& shown) {
  json::object counts;
  for (const FateText& f : fate_texts) counts[salvage::to_string(f.fate)] = shown.report.count(f.fate);
  json::array messages, notes(shown.report.notes.begin(), shown.report.notes.end());
  for (std::size_t i = 0; i < shown.report.messages.size(); ++i) {
    const salvage::MessageFate& f = shown.report.messages[i];
    const Message& m = shown.manifest.messages[f.message];
    messages.push_back(json::object{{"number", m.number},
                                    {"user", printable(m.user)},
                                    {"maildir", printable(m.maildir)},
                                    {"folder", printable(m.folder)},
                                    {"name", printable(m.name)},
                                    {"new", m.in_new},
                                    {"uncertain", m.kind == salvage::Kind::uncertain},
                                    {"bytes", m.bytes},
                                    {"content", m.content.hex()},
                                    {"fate", salvage::to_string(f.fate)},
                                    {"detail", printable(f.detail)},
                                    {"folder_or_flags_lost", loses_its_place(shown, i)}});
  }
  json::object root{{"bundle", shown.bundle},
                    {"volume", shown.manifest.volume.text()},
                    {"loser", shown.manifest.parting.loser},
                    {"parting_lsn", shown.manifest.parting.lsn},
                    {"dry_run", shown.dry_run},
                    {"open", shown.report.open()},
                    {"counts", std::move(counts)},
                    {"messages", std::move(messages)},
                    {"notes", std::move(notes)},
                    {"extract_problems", shown.manifest.problems.size()},
                    {"extract_problems_accepted", shown.problems_accepted}};
  return json::serialize(root) + "\n";
}

}  // namespace twinloft::repl::ctl
