// Runs scripts: steps one after the other, with what they opened.
#ifndef SCRIPT_H
#define SCRIPT_H

#include "form.h"

// What a script opened. Given back when it ends.
typedef struct handle {
  enum { CURSOR, SNAPSHOT, TRANSACTION } kind;
  uint64_t number;
  union {
    quarry_cursor *cursor;
    quarry_snapshot *snapshot;
    quarry_transaction *transaction;
  };
  struct handle *older;
} handle;

// A script in progress.
typedef struct {
  handle *handles;
  // The seq of its last write.
  quarry_seq last_seq;
  // How the reply goes out.
  quarry_bytes content_type;
  bool when_applied;
  // Whether the error of the step is one of the call.
  bool fails;
  // The arguments of the step that are left.
  quarry_bytes args;
} script;

// Runs a script; the list of its results as the reply.
quarry_status script_run(quarry_bytes steps, quarry_reply *reply);
// Runs the script under a key, and says whether there is that key, unless `found` is NULL.
quarry_status script_run_stored(const char *key, bool *found);

// Keeps what was opened under its number.
void script_open(script *in, uint64_t number, handle opened);
// Gives back what was opened.
quarry_status script_close(script *in, uint64_t number);
// What is open under a number.
quarry_status script_handle(script *in, uint64_t number, handle **found);
// Notes the seq of a write, and adds it.
void script_wrote(script *in, quarry_seq seq, list *values);

// The errors of what is no script, and of a handle that is not there, or of another kind.
quarry_status script_invalid(script *in);
quarry_status script_no_handle(uint64_t number);

// The next argument.
bool args_left(const script *in);
quarry_status args_bytes(script *in, quarry_bytes *item);
quarry_status args_text(script *in, quarry_bytes *item);
// As text that ends with a zero, which it must not have inside: the SDK takes names in this form.
quarry_status args_name(script *in, const char **item);
quarry_status args_number(script *in, uint64_t *item);
quarry_status args_flag(script *in, bool *item);
// None too where it was left out at the end.
quarry_status args_option(script *in, quarry_optional *item);
quarry_status args_optional_number(script *in, bool *some, uint64_t *item);
// The place of a word in a list of words that ends with NULL.
quarry_status args_choice(script *in, const char *const *words, int *place);

// A command: adds the values of its result.
typedef struct {
  const char *name;
  quarry_status (*run)(script *in, list *values);
} command;
// Each ends with a command without a name.
extern const command DATABASE[];
extern const command SURROUNDINGS[];

#endif
