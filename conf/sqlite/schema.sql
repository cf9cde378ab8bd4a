-- Users of lmtpd in SQLite: sqlite3 /etc/twinloft/users.sqlite < schema.sql
--
-- lmtpd opens the file read-only and asks, by default:
--   SELECT user, uid, gid, home, maildir, agent, quota_bytes, quota_messages, detail_folders, next_hop
--     FROM users WHERE user = :address AND active = 1
-- Addresses are asked for in lower case and without detail ("ann+lists@example.org" asks for "ann@example.org").
-- A query with aliases: lmtpd-mysql.toml, where IF(active, 'active', 'disabled') is iif(...).
CREATE TABLE users (
  user    TEXT    NOT NULL PRIMARY KEY CHECK (user = lower(user)),
  uid     INTEGER NOT NULL CHECK (typeof(uid) = 'integer' AND uid BETWEEN 1 AND 4294967294),
  gid     INTEGER NOT NULL CHECK (typeof(gid) = 'integer' AND gid BETWEEN 1 AND 4294967294),
  home    TEXT    NOT NULL CHECK (home LIKE '/%'),
  maildir TEXT             CHECK (maildir LIKE '/%' OR maildir LIKE '~/%' OR maildir = '~'),  -- NULL: for users whose agent is an external one
  agent   TEXT,                                        -- NULL: the configured default
  active  INTEGER NOT NULL DEFAULT 1 CHECK (active IN (0, 1)),
  quota_bytes    INTEGER   CHECK (quota_bytes >= 0),     -- NULL: as [quota] says; 0: no limit
  quota_messages INTEGER   CHECK (quota_messages >= 0),
  detail_folders TEXT      CHECK (detail_folders IN ('none', 'existing', 'create')),  -- NULL: as [maildir] says
  next_hop       TEXT                                    -- a [next_hop.NAME] that the mail is handed on to; NULL: it is delivered here
) WITHOUT ROWID;

-- "@example.org" is the alias of all addresses of that domain that are not there, with catch_all = true.
CREATE TABLE aliases (
  address TEXT NOT NULL PRIMARY KEY CHECK (address = lower(address)),
  target  TEXT NOT NULL                                  -- one address, of a user or of another alias
) WITHOUT ROWID;

-- The journal mode stays the default. WAL would need write access to the directory even for reading, which lmtpd has
-- not and should not have; with the default a look-up waits for a running write, up to the busy timeout.
