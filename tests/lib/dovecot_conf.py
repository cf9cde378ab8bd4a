"""Parts of Dovecot's configuration in the syntax of the installed Dovecot, 2.3 or 2.4 and later, and its start."""
import functools, re

import twinloft as tl

VARIABLES = {"u": "user", "n": "user | username", "d": "user | domain"}


@functools.cache
def is_2_4():
    major, minor = re.match(r"(\d+)\.(\d+)", tl.run("dovecot", "--version").stdout).groups()
    return (int(major), int(minor)) >= (2, 4)


def by_version(old, new):
    return new if is_2_4() else old


def start(stage, name, config, log, launch=None):
    """Starts Dovecot with this configuration, which logs to `log`, and waits until it listens everywhere. Returns its Process.

    launch(name, command) returns the Process. None: that of the stage.
    """
    begin = log.stat().st_size if log.exists() else 0
    stage.tell(log)
    process = (launch or stage.start)(name, ["/usr/sbin/dovecot", "-F", "-c", config])
    # Dovecot says so after it listens at the last of its sockets.
    tl.wait_for(lambda: log.exists() and b" starting up " in log.read_bytes()[begin:] or process.check_alive(), f"{name} to listen")
    return process


def variables(text):
    """%u, %n, %d and %Lu in the syntax of 2.4."""
    return re.sub(r"%(L?)([und])", lambda m: f"%{{{VARIABLES[m[2]]}{' | lower' if m[1] else ''}}}", text) if is_2_4() else text


def begin():
    """The first lines of a file."""
    return by_version("", "dovecot_config_version = 2.4.0\ndovecot_storage_version = 2.4.0\n")


def protocols(*names):
    return by_version(f"protocols = {' '.join(names)}\n", "protocols {\n" + "".join(f"  {n} = yes\n" for n in names) + "}\n")


def plugins(*names):
    return by_version(f"mail_plugins = {' '.join(names)}\n", "mail_plugins {\n" + "".join(f"  {n} = yes\n" for n in names) + "}\n")


def maildir(path="~/Maildir"):
    return by_version(f"mail_location = maildir:{path}\n", f"mail_driver = maildir\nmail_path = {path}\n")


def no_password():
    return by_version("passdb {\n  driver = static\n  args = nopassword=y\n}\n", "passdb static {\n  fields {\n    nopassword = yes\n  }\n}\n")


def password(text):
    return by_version(f"passdb {{\n  driver = static\n  args = password={text}\n}}\n", f"passdb static {{\n  password = {text}\n}}\n")


def static_users(uid, gid, home):
    return by_version(f"userdb {{\n  driver = static\n  args = uid={uid} gid={gid} home={home}\n}}\n",
                      f"userdb static {{\n  fields {{\n    uid = {uid}\n    gid = {gid}\n    home = {variables(home)}\n  }}\n}}\n")


def users_file(path, name="%u"):
    """In Dovecot's passwd format. name: the part of the address in the first field."""
    return by_version(f"userdb {{\n  driver = passwd-file\n  args = username_format={name} {path}\n}}\n",
                      f"userdb passwd-file {{\n  passwd_file_path = {path}\n  auth_username_format = {variables(name)}\n}}\n")


def users_sqlite(database, query, extra_file):
    """extra_file: for 2.3, which has the query in a separate file."""
    if is_2_4():
        return f"sql_driver = sqlite\nsqlite_path = {database}\nuserdb sql {{\n  query = {variables(query)}\n}}\n"
    extra_file.write_text(f"driver = sqlite\nconnect = {database}\nuser_query = {query}\n")
    return f"userdb {{\n  driver = sql\n  args = {extra_file}\n}}\n"


def certificate(path, key):
    return by_version(f"ssl_cert = <{path}\nssl_key = <{key}\nssl_dh =\n", f"ssl_server_cert_file = {path}\nssl_server_key_file = {key}\n")


def quota(driver):
    """A quota without limits. The driver count uses sizes with CRLF, as 2.4 always does."""
    return by_version(f"plugin {{\n  quota = {driver}:User quota\n{'  quota_vsizes = yes' if driver == 'count' else ''}\n}}\n",
                      f'quota "User quota" {{\n  driver = {driver}\n}}\n')


def quota_limit(storage):
    """The limit of users whose rows have none."""
    return by_version(f"plugin {{\n  quota_rule = *:storage={storage}\n}}\n", f"quota_storage_size = {storage}\n")


def listener(address, port):
    """The address and port of an inet_listener."""
    return f"    {by_version('address', 'listen')} = {address}\n    port = {port}\n"
