#include "script.h"

static quarry_status run_steps(script *in, quarry_bytes steps, list *results);
static quarry_status run_step(script *in, quarry_bytes step, list *results);

quarry_status script_run(quarry_bytes steps, quarry_reply *reply) {
  script in = {0};
  list results = {0};
  quarry_status error = run_steps(&in, steps, &results);
  while (in.handles) script_close(&in, in.handles->number);
  if (error) return error;
  *reply = (quarry_reply){list_bytes(&results), in.content_type, in.when_applied};
  return QUARRY_OK;
}

quarry_status script_run_stored(const char *key, bool *found) {
  quarry_optional steps;
  quarry_reply reply;
  QUARRY_TRY(quarry_get(quarry_text(key), &steps));
  if (found) *found = steps.some;
  return steps.some ? script_run(steps.bytes, &reply) : QUARRY_OK;
}

static quarry_status run_steps(script *in, quarry_bytes steps, list *results) {
  while (steps.len) {
    quarry_bytes step;
    if (!list_next(&steps, &step)) return script_invalid(in);
    size_t opened = list_open(results);
    QUARRY_TRY(run_step(in, step, results));
    list_close(results, opened);
  }
  return QUARRY_OK;
}

static const command *named(quarry_bytes name) {
  const command *const tables[] = {DATABASE, SURROUNDINGS};
  for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
    for (const command *it = tables[i]; it->name; it++) {
      if (quarry_equal(name, quarry_text(it->name))) return it;
    }
  }
  return NULL;
}

static quarry_status run_step(script *in, quarry_bytes step, list *results) {
  quarry_bytes name;
  in->args = step;
  QUARRY_TRY(args_text(in, &name));
  bool raises = name.len && *name.ptr == '!';
  if (raises) name = quarry_view(name.ptr + 1, name.len - 1);
  size_t begun = results->len;
  list_add_text(results, "ok");
  const command *found = named(name);
  quarry_status error = found ? found->run(in, results)
                              : quarry_fail("unknown-command", "there is no command `%.*s`", (int)name.len, (const char *)name.ptr);
  if (!error) return QUARRY_OK;
  if (raises || in->fails) return error;
  results->len = begun;
  list_add_text(results, "err");
  list_add(results, error->code);
  list_add(results, error->message);
  list_add_flag(results, error->retryable);
  return QUARRY_OK;
}

// ---------------------------------------------------------------------------------------------------------------------
// Handles

void script_open(script *in, uint64_t number, handle opened) {
  script_close(in, number);
  handle *kept = quarry_alloc(sizeof *kept);
  opened.number = number;
  opened.older = in->handles;
  *kept = opened;
  in->handles = kept;
}

quarry_status script_close(script *in, uint64_t number) {
  for (handle **at = &in->handles; *at; at = &(*at)->older) {
    handle *it = *at;
    if (it->number != number) continue;
    *at = it->older;
    switch (it->kind) {
      case CURSOR: quarry_close(it->cursor); break;
      case SNAPSHOT: quarry_close_snapshot(it->snapshot); break;
      case TRANSACTION: quarry_rollback(it->transaction); break;
    }
    return QUARRY_OK;
  }
  return script_no_handle(number);
}

quarry_status script_handle(script *in, uint64_t number, handle **found) {
  for (*found = in->handles; *found; *found = (*found)->older) {
    if ((*found)->number == number) return QUARRY_OK;
  }
  return script_no_handle(number);
}

void script_wrote(script *in, quarry_seq seq, list *values) {
  in->last_seq = seq;
  list_add_number(values, seq);
}

quarry_status script_invalid(script *in) {
  in->fails = true;
  return quarry_fail("invalid-payload", "this is no script");
}

quarry_status script_no_handle(uint64_t number) {
  return quarry_fail("no-handle", "%llu is no handle that takes this", (unsigned long long)number);
}

// ---------------------------------------------------------------------------------------------------------------------
// Arguments

bool args_left(const script *in) { return in->args.len > 0; }

quarry_status args_bytes(script *in, quarry_bytes *item) {
  return args_left(in) && list_next(&in->args, item) ? QUARRY_OK : script_invalid(in);
}

quarry_status args_text(script *in, quarry_bytes *item) {
  QUARRY_TRY(args_bytes(in, item));
  return is_text(*item) ? QUARRY_OK : script_invalid(in);
}

quarry_status args_name(script *in, const char **item) {
  quarry_bytes text;
  QUARRY_TRY(args_text(in, &text));
  if (text.len && memchr(text.ptr, 0, text.len)) return quarry_fail("unsupported", "a name ends at its first zero byte");
  *item = (const char *)quarry_printf("%.*s%c", (int)text.len, (const char *)text.ptr, 0).ptr;
  return QUARRY_OK;
}

quarry_status args_number(script *in, uint64_t *item) {
  quarry_bytes bytes;
  QUARRY_TRY(args_bytes(in, &bytes));
  return number_of(bytes, item) ? QUARRY_OK : script_invalid(in);
}

quarry_status args_flag(script *in, bool *item) {
  static const char *const flags[] = {"0", "1", NULL};
  int place;
  QUARRY_TRY(args_choice(in, flags, &place));
  *item = place == 1;
  return QUARRY_OK;
}

quarry_status args_option(script *in, quarry_optional *item) {
  quarry_bytes bytes = {0};
  if (args_left(in)) QUARRY_TRY(args_bytes(in, &bytes));
  *item = (quarry_optional){bytes.len > 0, {0}};
  if (!item->some) return QUARRY_OK;
  item->bytes = quarry_view(bytes.ptr + 1, bytes.len - 1);
  return *bytes.ptr == '+' ? QUARRY_OK : script_invalid(in);
}

quarry_status args_optional_number(script *in, bool *some, uint64_t *item) {
  quarry_optional option;
  QUARRY_TRY(args_option(in, &option));
  *some = option.some;
  return !option.some || number_of(option.bytes, item) ? QUARRY_OK : script_invalid(in);
}

quarry_status args_choice(script *in, const char *const *words, int *place) {
  quarry_bytes word;
  QUARRY_TRY(args_bytes(in, &word));
  for (*place = 0; words[*place]; ++*place) {
    if (quarry_equal(word, quarry_text(words[*place]))) return QUARRY_OK;
  }
  return script_invalid(in);
}
