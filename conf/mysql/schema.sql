-- Users of lmtpd in MariaDB:  mysql mail < schema.sql
--
-- lmtpd asks, by default:
--   SELECT user, uid, gid, home, maildir, agent, quota_bytes, quota_messages, detail_folders, next_hop
--     FROM users WHERE user = :address AND active = 1
-- for addresses in lower case and without detail ("ann+lists@example.org" asks for "ann@example.org"); lmtpd-mysql.toml has a query with aliases.
-- It needs to read, and nothing else, and so does Dovecot:
--   CREATE USER 'lmtpd'@'localhost' IDENTIFIED BY '...';    GRANT SELECT ON mail.* TO 'lmtpd'@'localhost';
--   CREATE USER 'dovecot'@'localhost' IDENTIFIED BY '...';  GRANT SELECT ON mail.* TO 'dovecot'@'localhost';
--
-- These collations keep apart what differs; others find "änn" for "ann", or blanks at the end of a name. MySQL calls them utf8mb4_0900_bin.
CREATE TABLE users (
  user    VARCHAR(320)  CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL PRIMARY KEY CHECK (user = LOWER(user)),
  uid     INT UNSIGNED  NOT NULL CHECK (uid BETWEEN 1 AND 4294967294),
  gid     INT UNSIGNED  NOT NULL CHECK (gid BETWEEN 1 AND 4294967294),
  home    VARCHAR(4096) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL CHECK (home LIKE '/%'),
  maildir VARCHAR(4096) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL CHECK (maildir LIKE '/%' OR maildir LIKE '~/%' OR maildir = '~'),  -- NULL: for users whose agent is an external one
  agent   VARCHAR(64)   NULL,                                                                       -- NULL: the configured default
  active  TINYINT       NOT NULL DEFAULT 1 CHECK (active IN (0, 1)),
  quota_bytes    BIGINT UNSIGNED NULL,                                                              -- NULL: as [quota] says; 0: no limit
  quota_messages BIGINT UNSIGNED NULL,
  detail_folders VARCHAR(8)  NULL CHECK (detail_folders IN ('none', 'existing', 'create')),         -- NULL: as [maildir] says
  next_hop       VARCHAR(64) NULL                                                                   -- a [next_hop.NAME] that the mail is handed on to; NULL: it is delivered here
) ENGINE = InnoDB;

-- "@example.org" is the alias of all addresses of that domain that are not there, with catch_all = true.
CREATE TABLE aliases (
  address VARCHAR(320) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL PRIMARY KEY CHECK (address = LOWER(address)),
  target  VARCHAR(320) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL                     -- one address, of a user or of another alias
) ENGINE = InnoDB;
