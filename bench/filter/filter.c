/* A milter that hears every stage and changes nothing: what a filter costs before it does any work.
 *
 *   bench_filter ADDRESS [--no-replies]
 *
 * ADDRESS: as for libmilter, "unix:/path". --no-replies: it asks to answer only at the end of the message
 * (SMFIP_NR_*), so that lmtpd does not wait for it at any other stage. */
#include <libmilter/mfapi.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const unsigned long no_replies = SMFIP_NR_CONN | SMFIP_NR_HELO | SMFIP_NR_MAIL | SMFIP_NR_RCPT |
                                        SMFIP_NR_DATA | SMFIP_NR_HDR | SMFIP_NR_EOH | SMFIP_NR_BODY;
static bool is_silent = false;

static sfsistat heard(void) {
  return is_silent ? SMFIS_NOREPLY : SMFIS_CONTINUE;
}

static sfsistat on_negotiate(SMFICTX* context, unsigned long actions, unsigned long steps, unsigned long a,
                             unsigned long b, unsigned long* wanted_actions, unsigned long* wanted_steps,
                             unsigned long* wanted_a, unsigned long* wanted_b) {
  (void)context, (void)actions, (void)a, (void)b;
  *wanted_actions = 0;
  *wanted_steps = 0;
  *wanted_a = *wanted_b = 0;
  if (!is_silent) return SMFIS_CONTINUE;
  if ((steps & no_replies) != no_replies) {
    fputs("bench_filter: the other side waits for a reply at some stages\n", stderr);
    return SMFIS_REJECT;
  }
  *wanted_steps = no_replies;
  return SMFIS_CONTINUE;
}

static sfsistat on_connect(SMFICTX* context, char* host, _SOCK_ADDR* address) {
  (void)context, (void)host, (void)address;
  return heard();
}
static sfsistat on_helo(SMFICTX* context, char* name) {
  (void)context, (void)name;
  return heard();
}
static sfsistat on_address(SMFICTX* context, char** words) {
  (void)context, (void)words;
  return heard();
}
static sfsistat on_data(SMFICTX* context) {
  (void)context;
  return heard();
}
static sfsistat on_header(SMFICTX* context, char* name, char* value) {
  (void)context, (void)name, (void)value;
  return heard();
}
static sfsistat on_body(SMFICTX* context, unsigned char* bytes, size_t size) {
  (void)context, (void)bytes, (void)size;
  return heard();
}
static sfsistat on_end(SMFICTX* context) {
  (void)context;
  return SMFIS_CONTINUE;
}

int main(int argc, char** argv) {
  if (argc == 3 && strcmp(argv[2], "--no-replies") == 0)
    is_silent = true;
  else if (argc != 2) {
    fputs("usage: bench_filter ADDRESS [--no-replies]\n", stderr);
    return 64;
  }
  static char name[] = "bench_filter";
  struct smfiDesc filter = {.xxfi_name = name,
                            .xxfi_version = SMFI_VERSION,
                            .xxfi_connect = on_connect,
                            .xxfi_helo = on_helo,
                            .xxfi_envfrom = on_address,
                            .xxfi_envrcpt = on_address,
                            .xxfi_header = on_header,
                            .xxfi_eoh = on_data,
                            .xxfi_body = on_body,
                            .xxfi_eom = on_end,
                            .xxfi_abort = on_end,
                            .xxfi_close = on_end,
                            .xxfi_data = on_data,
                            .xxfi_negotiate = on_negotiate};
  if (smfi_setconn(argv[1]) != MI_SUCCESS || smfi_register(filter) != MI_SUCCESS) {
    fprintf(stderr, "bench_filter: cannot listen at %s\n", argv[1]);
    return 69;
  }
  return smfi_main() == MI_SUCCESS ? 0 : 70;
}
