#include "rules.h"

#define MAX_LIMIT 1000000u
#define NS_PER_MS UINT64_C(1000000)
#define DAY_MS UINT64_C(86400000)

// A place in the options. The host has checked that they are a JSON object; what is in it is for this file to say.
typedef struct {
  quarry_bytes json;
  size_t at;
} reader;

static bool take(reader *in, char wanted) {
  while (in->at < in->json.len && memchr(" \t\r\n", in->json.ptr[in->at], 4)) in->at++;
  if (in->at == in->json.len || in->json.ptr[in->at] != (uint8_t)wanted) return false;
  in->at++;
  return true;
}

// A string without escapes, which no pattern and no rule needs.
static bool take_string(reader *in, quarry_bytes *text) {
  if (!take(in, '"')) return false;
  size_t start = in->at;
  for (; in->at < in->json.len; in->at++) {
    uint8_t byte = in->json.ptr[in->at];
    if (byte == '\\') return false;
    if (byte == '"') {
      *text = quarry_view(in->json.ptr + start, in->at - start);
      in->at++;
      return true;
    }
  }
  return false;
}

// Digits up to `most`, from 1.
static bool take_number(quarry_bytes *text, uint64_t most, uint64_t *number) {
  *number = 0;
  size_t at = 0;
  for (; at < text->len && text->ptr[at] >= '0' && text->ptr[at] <= '9'; at++) {
    *number = *number * 10 + (text->ptr[at] - '0');
    if (*number > most) return false;
  }
  *text = quarry_view(text->ptr + at, text->len - at);
  return *number > 0;
}

// `10/1s`: so many in that time, in ms, s, m or h.
static bool read_rule(quarry_bytes text, bucket_rule *rule) {
  static const struct {
    const char *name;
    uint64_t ms;
  } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};
  uint64_t period;
  if (!take_number(&text, MAX_LIMIT, &rule->limit) || !text.len || text.ptr[0] != '/') return false;
  text = quarry_view(text.ptr + 1, text.len - 1);
  if (!take_number(&text, DAY_MS, &period)) return false;
  for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
    if (!quarry_equal(text, quarry_text(units[i].name))) continue;
    if (period > DAY_MS / units[i].ms) return false;
    rule->interval_ns = period * units[i].ms * NS_PER_MS / rule->limit;
    return true;
  }
  return false;
}

// How well a pattern fits: 0 for not at all, and more for the key itself than for any beginning of it.
static size_t fit(quarry_bytes pattern, quarry_bytes key) {
  if (pattern.len && pattern.ptr[pattern.len - 1] == '*') {
    size_t len = pattern.len - 1;
    return len <= key.len && memcmp(pattern.ptr, key.ptr, len) == 0 ? len + 1 : 0;
  }
  return quarry_equal(pattern, key) ? SIZE_MAX : 0;
}

quarry_bytes rules_find(quarry_bytes options, quarry_bytes key, bucket_rule *rule, bool *found) {
  reader in = {options, 0};
  size_t best = 0;
  *found = false;
  if (!take(&in, '{')) return QUARRY_BYTES("options are a JSON object");
  // Without options, there is a rule all the same.
  if (take(&in, '}')) return rules_find(QUARRY_BYTES("{\"*\":\"10/1s\"}"), key, rule, found);
  do {
    quarry_bytes pattern, text;
    bucket_rule read;
    if (!take_string(&in, &pattern) || !take(&in, ':')) return QUARRY_BYTES("a pattern is text without `\\` and `\"`");
    if (!take_string(&in, &text) || !read_rule(text, &read)) {
      return quarry_printf("the rule of `%.*s` is not as \"10/1s\": 1 to %u, `/`, and a time of up to 24h in ms, s, m or h", (int)pattern.len,
                           (const char *)pattern.ptr, MAX_LIMIT);
    }
    size_t fits = fit(pattern, key);
    if (fits > best) {
      best = fits;
      *rule = read;
      *found = true;
    }
  } while (take(&in, ','));
  return take(&in, '}') ? QUARRY_BYTES("") : QUARRY_BYTES("options are a JSON object");
}
