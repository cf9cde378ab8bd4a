// What the session asks the filters, and what follows from their verdicts.
#include <fmt/format.h>

#include <charconv>

#include "twinloft/lmtpd/proto/xtext.h"
#include "twinloft/lmtpd/session/session.h"

namespace twinloft::lmtpd {

namespace {

// 0: not a port.
std::uint16_t port_of(std::string_view text) {
  std::uint16_t port = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() ? port : 0;
}

}  // namespace

// XFORWARD is about the client of one message, XCLIENT about that of the session.
FilterClient Session::filter_client() const {
  const Origin& origin = said_.origin;
  if (!origin.name.empty() || !origin.address.empty() || !origin.helo.empty())
    return {origin.name, origin.address, origin.helo, port_of(origin.port), {}};
  if (said_.address)
    return {said_.client_name,
            *said_.address,
            said_.client_helo.empty() ? *said_.lhlo : said_.client_helo,
            port_of(said_.client_port),
            {}};
  return {{}, {}, *said_.lhlo, 0, tls_};
}

FilterRcpt Session::filter_rcpt(const Recipient& recipient, bool refused) {
  FilterRcpt out{recipient.text, {}, refused};
  if (!recipient.notify.empty()) out.parameters.push_back("NOTIFY=" + recipient.notify);
  if (!recipient.original_to.empty() && !recipient.original_type.empty())
    out.parameters.push_back(
        fmt::format("ORCPT={};{}", recipient.original_type, encode_xtext(recipient.original_to)));
  return out;
}

bool Session::close_if_asked(const FilterVerdict& verdict) {
  if (!verdict.refusal || !verdict.ends_connection) return false;
  tell_refusal(Refused::What::connection, {}, *verdict.refusal);
  drop_message();
  reply(*verdict.refusal);
  end_silently();
  return true;
}

void Session::go_on(Beginning&& pending, FilterVerdict&& verdict) {
  if (!verdict.refusal) return begin_transaction(std::move(pending.transaction));
  actions_.emplace_back(ForgetTransaction{});
  if (!close_if_asked(verdict))
    refuse(Refused::What::sender, pending.transaction.envelope->from, *verdict.refusal);
}

void Session::go_on(Judged&& pending, FilterVerdict&& verdict) {
  const std::string& address = pending.recipient.text;
  if (pending.refusal) return refuse(Refused::What::recipient, address, *pending.refusal);
  if (!verdict.refusal) return take_recipient(std::move(pending.recipient));
  if (!close_if_asked(verdict)) refuse(Refused::What::recipient, address, *verdict.refusal);
}

void Session::go_on(AtData&&, FilterVerdict&& verdict) {
  if (!verdict.refusal) return begin_data();
  if (close_if_asked(verdict)) return;
  tell_refusal(Refused::What::message, transaction_->envelope->recipients.front().text, *verdict.refusal);
  reply(*verdict.refusal);
  reset_transaction();  // otherwise filters that have accepted DATA would hear commands out of order
}

// A refused chunk is skipped; its reply follows, or those for each recipient.
void Session::go_on(AtChunk&& pending, FilterVerdict&& verdict) {
  if (close_if_asked(verdict)) return;
  if (verdict.refusal) {
    begin_message();
    body_failed(*verdict.refusal);
  }
  begin_chunk(pending.command, std::nullopt);
}

}  // namespace twinloft::lmtpd
