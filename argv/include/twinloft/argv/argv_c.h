/* Command templates for C; installed as <twinloft/argv.h>. The language is described in docs/argv.md, the C++
 * library in twinloft/argv/argv.h.
 *
 * A template is immutable, so several threads may expand it at once. No function prints, ends the process or
 * throws an exception. The caller owns each result of a function, and frees it by a function below. Strings
 * of a tl_argv_template are valid until the template is freed.
 */
#ifndef TWINLOFT_ARGV_C_H
#define TWINLOFT_ARGV_C_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tl_argv_template tl_argv_template;

typedef enum tl_argv_status {
  TL_ARGV_OK = 0,
  TL_ARGV_BAD_TEMPLATE = 1,   /* see line, column and rendered */
  TL_ARGV_MISSING_VALUE = 2,  /* no value was given for a macro that the template uses */
  TL_ARGV_FORBIDDEN_BYTE = 3, /* a value holds NUL, CR or LF */
  TL_ARGV_LEADING_DASH = 4,   /* a value would become an option of the program. A value directly after an
                                 option with an argument is allowed (dovecot-lda -f -a -d -r -m) */
  TL_ARGV_LIMIT = 5,          /* too many or too long arguments */
  TL_ARGV_RECIPIENTS = 6,     /* no recipients, or a program that depends on the recipient */
  TL_ARGV_NO_MEMORY = 7,
  TL_ARGV_BAD_CALL = 8 /* a null pointer that is not allowed */
} tl_argv_status;

typedef struct tl_argv_error {
  tl_argv_status status;
  size_t line;         /* TL_ARGV_BAD_TEMPLATE: from 1; otherwise 0 */
  size_t column;       /* TL_ARGV_BAD_TEMPLATE: from 1, in characters; otherwise 0 */
  size_t word;         /* of an expansion: the word of the template, from 1. 0: not about a word */
  char message[512];   /* one sentence, without bytes of any value */
  char rendered[1024]; /* the message with its position. For a bad template also the line, and a caret below
                          the position */
} tl_argv_error;

typedef struct tl_argv_macro {
  const char* name;
  int per_recipient; /* not 0: tl_argv_expand_all repeats a word or group with this macro */
} tl_argv_macro;

typedef struct tl_argv_value {
  const char* name;
  const char* value;
  size_t length; /* of the value in bytes. TL_ARGV_LENGTH: the value ends in NUL */
} tl_argv_value;

#define TL_ARGV_LENGTH ((size_t)-1)

typedef struct tl_argv_values {
  const tl_argv_value* values;
  size_t count;
} tl_argv_values;

/* Parses a template of `length` bytes, or up to its NUL with TL_ARGV_LENGTH. macros: the names that it may
 * use; NULL with a count of 0: the macros of mail delivery. *out is NULL unless TL_ARGV_OK is returned. In
 * every function, `error` may be NULL. */
tl_argv_status tl_argv_parse(const char* text, size_t length, const tl_argv_macro* macros, size_t macro_count,
                             tl_argv_template** out, tl_argv_error* error);
void tl_argv_template_free(tl_argv_template* command); /* NULL is allowed */

size_t tl_argv_word_count(const tl_argv_template* command);
/* Not 0 if the template uses the macro. The values of other macros are not needed. */
int tl_argv_uses(const tl_argv_template* command, const char* macro);

size_t tl_argv_warning_count(const tl_argv_template* command);
/* The warning with its position, the line and a caret. NULL: index is too large. */
const char* tl_argv_warning(const tl_argv_template* command, size_t index);

/* Sets *argv to a NULL-terminated array for execv(), in one block for tl_argv_vector_free(), and *argc to its
 * length. argc may be NULL. Of two values with one name, the later value counts. */
tl_argv_status tl_argv_expand(const tl_argv_template* command, tl_argv_values values, char*** argv,
                              size_t* argc, tl_argv_error* error);
tl_argv_status tl_argv_expand_all(const tl_argv_template* command, tl_argv_values shared,
                                  const tl_argv_values* recipients, size_t recipient_count, char*** argv,
                                  size_t* argc, tl_argv_error* error);
void tl_argv_vector_free(char** argv); /* NULL is allowed */

#ifdef __cplusplus
}
#endif

#endif
