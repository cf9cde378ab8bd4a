/* The C interface, used from C. Prints each failed check and returns 1. */
#include <stdio.h>
#include <string.h>

#include "twinloft/argv/argv_c.h"

static int failures = 0;

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      ++failures;                                                     \
    }                                                                 \
  } while (0)

static tl_argv_value text_value(const char* name, const char* value) {
  tl_argv_value v = {name, value, TL_ARGV_LENGTH};
  return v;
}

static tl_argv_template* parsed(const char* text) {
  tl_argv_template* t = NULL;
  tl_argv_error error;
  if (tl_argv_parse(text, TL_ARGV_LENGTH, NULL, 0, &t, &error) != TL_ARGV_OK) {
    fprintf(stderr, "%s", error.rendered);
    ++failures;
  }
  return t;
}

static void test_expand(void) {
  tl_argv_template* t = parsed("/bin/agent -f %from% [ -a %original_to% ] -d %to%");
  tl_argv_value list[] = {text_value("from", ""),
                          text_value("to", "old"),
                          {"original_to", "unused", 0},
                          {"to", "user@example.org and more", 16}};
  tl_argv_values values = {list, 4};
  char** argv = NULL;
  size_t argc = 0;
  CHECK(tl_argv_word_count(t) == 7);
  CHECK(tl_argv_uses(t, "to") != 0 && tl_argv_uses(t, "uid") == 0);
  CHECK(tl_argv_expand(t, values, &argv, &argc, NULL) == TL_ARGV_OK);
  CHECK(argc == 5 && argv != NULL && argv[5] == NULL);
  if (argc == 5) {
    CHECK(strcmp(argv[0], "/bin/agent") == 0 && strcmp(argv[1], "-f") == 0 && strcmp(argv[2], "") == 0);
    CHECK(strcmp(argv[3], "-d") == 0 && strcmp(argv[4], "user@example.org") == 0);
  }
  tl_argv_vector_free(argv);
  tl_argv_template_free(t);
}

static void test_expand_all(void) {
  tl_argv_template* t = parsed("p -f %from% -- %to%");
  tl_argv_value from[] = {text_value("from", "f")};
  tl_argv_value first[] = {text_value("to", "a")};
  tl_argv_value second[] = {text_value("to", "-b")};
  tl_argv_values shared = {from, 1};
  tl_argv_values recipients[] = {{first, 1}, {second, 1}};
  char** argv = NULL;
  size_t argc = 0;
  tl_argv_error error;
  CHECK(tl_argv_expand_all(t, shared, recipients, 2, &argv, &argc, &error) == TL_ARGV_OK);
  CHECK(argc == 6);
  if (argc == 6) CHECK(strcmp(argv[4], "a") == 0 && strcmp(argv[5], "-b") == 0 && argv[6] == NULL);
  tl_argv_vector_free(argv);
  CHECK(tl_argv_expand_all(t, shared, NULL, 0, &argv, &argc, &error) == TL_ARGV_RECIPIENTS);
  CHECK(argv == NULL && argc == 0);
  tl_argv_template_free(t);
}

static void test_parse_errors(void) {
  tl_argv_template* t = (tl_argv_template*)&failures;
  tl_argv_error error;
  CHECK(tl_argv_parse("p -d %rcpt%", TL_ARGV_LENGTH, NULL, 0, &t, &error) == TL_ARGV_BAD_TEMPLATE);
  CHECK(t == NULL && error.status == TL_ARGV_BAD_TEMPLATE && error.line == 1 && error.column == 6);
  CHECK(strstr(error.message, "unknown macro %rcpt%") != NULL);
  CHECK(strstr(error.rendered, "\n  p -d %rcpt%\n       ^\n") != NULL);
  CHECK(tl_argv_parse("p a\0b", 5, NULL, 0, &t, &error) == TL_ARGV_BAD_TEMPLATE && error.column == 4);
  CHECK(tl_argv_parse(NULL, 0, NULL, 0, &t, &error) == TL_ARGV_BAD_CALL);
  CHECK(tl_argv_parse("p", 1, NULL, 1, &t, &error) == TL_ARGV_BAD_CALL);
  CHECK(tl_argv_parse("p", 1, NULL, 0, NULL, NULL) == TL_ARGV_BAD_CALL);
}

/* Message, excerpt and caret fit into the buffer, whatever the length of the template and the names. */
static void test_long_errors_are_whole(void) {
  static char text[5000];
  static char names[100][60];
  tl_argv_macro macros[100];
  tl_argv_template* t = NULL;
  tl_argv_error error;
  size_t i;
  memset(text, 'a', sizeof text - 1);
  memcpy(text, "p ", 2);
  text[1000] = ' ';
  text[1001] = '%';
  text[4000] = '%';
  for (i = 0; i < 100; ++i) {
    memset(names[i], 'n', sizeof names[i] - 1);
    macros[i].name = names[i];
    macros[i].per_recipient = 0;
  }
  CHECK(tl_argv_parse(text, TL_ARGV_LENGTH, macros, 100, &t, &error) == TL_ARGV_BAD_TEMPLATE);
  CHECK(error.column == 1002 && strlen(error.message) < sizeof error.message - 1);
  CHECK(strlen(error.rendered) < sizeof error.rendered - 1);
  CHECK(strcmp(error.rendered + strlen(error.rendered) - 2, "^\n") == 0);
}

static tl_argv_status expand_status(const tl_argv_template* t, const char* value, size_t length,
                                    tl_argv_error* error) {
  tl_argv_value list[] = {{"to", value, length}};
  tl_argv_values values = {list, 1};
  char** argv = (char**)&failures;
  tl_argv_status status = tl_argv_expand(t, values, &argv, NULL, error);
  CHECK(status == TL_ARGV_OK || argv == NULL);
  if (status == TL_ARGV_OK) tl_argv_vector_free(argv);
  return status;
}

static void test_expand_errors(void) {
  static char huge[140000];
  tl_argv_template* t = parsed("p x %to%");
  tl_argv_error error;
  tl_argv_values none = {NULL, 0};
  tl_argv_values broken = {NULL, 3};
  char** argv = NULL;
  memset(huge, 'a', sizeof huge);
  CHECK(expand_status(t, "a", TL_ARGV_LENGTH, &error) == TL_ARGV_OK);
  CHECK(expand_status(t, "-a", 2, &error) == TL_ARGV_LEADING_DASH && error.word == 3 && error.column == 0);
  CHECK(strstr(error.message, "%to%") != NULL && strcmp(error.message, error.rendered) == 0);
  {
    tl_argv_template* lda = parsed("/usr/lib/dovecot/dovecot-lda -d %to%");
    CHECK(expand_status(lda, "-a", 2, &error) == TL_ARGV_OK);
    tl_argv_template_free(lda);
  }
  CHECK(expand_status(t, "a\0b", 3, &error) == TL_ARGV_FORBIDDEN_BYTE);
  CHECK(expand_status(t, "a\n", TL_ARGV_LENGTH, NULL) == TL_ARGV_FORBIDDEN_BYTE);
  CHECK(expand_status(t, huge, sizeof huge, &error) == TL_ARGV_LIMIT);
  CHECK(expand_status(t, NULL, 0, &error) == TL_ARGV_OK);
  CHECK(expand_status(t, NULL, 1, &error) == TL_ARGV_BAD_CALL);
  CHECK(expand_status(t, NULL, TL_ARGV_LENGTH, &error) == TL_ARGV_BAD_CALL);
  CHECK(expand_status(NULL, "a", 1, &error) == TL_ARGV_BAD_CALL);
  CHECK(tl_argv_expand(t, none, &argv, NULL, &error) == TL_ARGV_MISSING_VALUE);
  CHECK(tl_argv_expand(t, broken, &argv, NULL, &error) == TL_ARGV_BAD_CALL);
  CHECK(tl_argv_expand(t, none, NULL, NULL, &error) == TL_ARGV_BAD_CALL);
  tl_argv_template_free(t);
}

static void test_warnings_and_own_macros(void) {
  tl_argv_template* t = parsed("p a | b");
  tl_argv_macro macros[] = {{"file", 1}};
  CHECK(tl_argv_warning_count(t) == 1);
  CHECK(tl_argv_warning(t, 0) != NULL && strstr(tl_argv_warning(t, 0), "column 5: '|'") != NULL);
  CHECK(tl_argv_warning(t, 1) == NULL);
  tl_argv_template_free(t);
  CHECK(tl_argv_parse("p %file%", TL_ARGV_LENGTH, macros, 1, &t, NULL) == TL_ARGV_OK);
  CHECK(tl_argv_uses(t, "file") != 0);
  tl_argv_template_free(t);
  CHECK(tl_argv_parse("p %to%", TL_ARGV_LENGTH, macros, 1, &t, NULL) == TL_ARGV_BAD_TEMPLATE);
  macros[0].name = NULL;
  CHECK(tl_argv_parse("p", TL_ARGV_LENGTH, macros, 1, &t, NULL) == TL_ARGV_BAD_CALL);
  tl_argv_template_free(NULL);
  tl_argv_vector_free(NULL);
  CHECK(tl_argv_word_count(NULL) == 0 && tl_argv_warning_count(NULL) == 0);
}

int main(void) {
  test_expand();
  test_expand_all();
  test_parse_errors();
  test_long_errors_are_whole();
  test_expand_errors();
  test_warnings_and_own_macros();
  return failures == 0 ? 0 : 1;
}
