-- Two users in the table that conf/sqlite/schema.sql makes, as lmtpd's default query and conf/dovecot read it:
--
--   cat schema.sql users.sql | sqlite3 /etc/twinloft/users.sqlite
--
-- The file needs no write access but root's:  chown root:vmail, chmod 640. lmtpd and Dovecot read changes at once, without
-- a restart. 5000 is the uid and gid of vmail, the same on both machines.
--
-- Other users of the same domain: replace address and the two paths. Nobody is removed by a mistake in this file: a user
-- with active = 0 gets no mail (550) and no login, and keeps the Maildir.
INSERT INTO users (user, uid, gid, home, maildir, agent, active) VALUES
  ('ann@example.org', 5000, 5000, '/srv/mail/example.org/ann', '/srv/mail/example.org/ann/Maildir', NULL, 1),
  ('bob@example.org', 5000, 5000, '/srv/mail/example.org/bob', '/srv/mail/example.org/bob/Maildir', NULL, 1);
