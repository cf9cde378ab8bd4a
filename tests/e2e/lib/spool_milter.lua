-- spool-milter as an MTA without settings of its own sees it. Run by miltertest with -D socket=...; the users are
-- those of tests/e2e/spool_milter.

local function connected()
  local conn = mt.connect(socket, 40, 0.25)
  if conn == nil then error("no connection to " .. socket) end
  if mt.negotiate(conn, nil, nil, nil) ~= nil then error("negotiation") end
  return conn
end

local function mail(conn, ...)
  if mt.mailfrom(conn, ...) ~= nil then error("MAIL") end
end

local function answer(conn, address, ...)
  if mt.rcptto(conn, address, ...) ~= nil then error("RCPT " .. address) end
  return mt.getreply(conn)
end

local function expect(conn, address, reply)
  local got = answer(conn, address)
  if got ~= reply then error(address .. ": reply " .. got .. " in place of " .. reply) end
end

-- It asks to hear MAIL and RCPT only, and answers nothing to MAIL.
local conn = connected()
for _, option in ipairs({ SMFIP_NOCONNECT, SMFIP_NOHELO, SMFIP_NOBODY, SMFIP_NOHDRS, SMFIP_NOEOH, SMFIP_NODATA,
                          SMFIP_NOUNKNOWN, SMFIP_NR_MAIL }) do
  if not mt.test_option(conn, option) then error("an option is not asked for: " .. option) end
end
for _, option in ipairs({ SMFIP_NOMAIL, SMFIP_NORCPT, SMFIP_RCPT_REJ }) do
  if mt.test_option(conn, option) then error("an option is asked for: " .. option) end
end
for _, action in ipairs({ SMFIF_ADDHDRS, SMFIF_CHGBODY, SMFIF_ADDRCPT, SMFIF_DELRCPT, SMFIF_QUARANTINE }) do
  if mt.test_action(conn, action) then error("a change of the message is asked for: " .. action) end
end

-- Several transactions of a connection, one of them given up.
mail(conn, "<s@example.net>", "SIZE=1000")
expect(conn, "<ann@example.org>", SMFIR_CONTINUE)
expect(conn, "<nobody@example.org>", SMFIR_REPLYCODE)
expect(conn, "<ann+lists@example.org>", SMFIR_CONTINUE)
expect(conn, "<nobody@example.com>", SMFIR_CONTINUE)
mt.abort(conn)
mail(conn, "<>")
expect(conn, "<nobody@example.org>", SMFIR_REPLYCODE)
expect(conn, "<ann@example.org>", SMFIR_CONTINUE)
if mt.eom(conn) ~= nil then error("the end of a message") end
if mt.getreply(conn) ~= SMFIR_CONTINUE then error("the end of a message is not accepted") end
mail(conn, "<s@example.net>")
expect(conn, "<nobody@example.org>", SMFIR_REPLYCODE)
mt.disconnect(conn)

-- By the macros alone.
conn = connected()
mail(conn, "<s@example.net>")
mt.macro(conn, SMFIC_RCPT, "{rcpt_mailer}", "lmtp", "{rcpt_host}", "unix:private/twinloft")
expect(conn, "<nobody@example.com>", SMFIR_REPLYCODE)
mt.macro(conn, SMFIC_RCPT, "{rcpt_mailer}", "smtp", "{rcpt_host}", "mx.example.com")
expect(conn, "<nobody@example.com>", SMFIR_CONTINUE)
mt.disconnect(conn, false)
