#include "scan.h"

#include "text.h"

#define DEFAULT_LIMIT 1000u
#define MAX_LIMIT 100000u

// A place in JSON. Only what a request of a scan needs: one object of strings, whole numbers and truth values.
typedef struct {
  quarry_bytes json;
  size_t at;
} reader;

static quarry_status invalid(const reader *in, const char *why) {
  return quarry_fail("invalid-payload", "the payload was not understood: %s at byte %zu", why, in->at);
}

static void skip_space(reader *in) {
  while (in->at < in->json.len && memchr(" \t\r\n", in->json.ptr[in->at], 4)) in->at++;
}

static bool take(reader *in, char wanted) {
  skip_space(in);
  if (in->at == in->json.len || in->json.ptr[in->at] != (uint8_t)wanted) return false;
  in->at++;
  return true;
}

static bool take_word(reader *in, const char *word) {
  size_t len = strlen(word);
  skip_space(in);
  if (in->json.len - in->at < len || memcmp(in->json.ptr + in->at, word, len) != 0) return false;
  in->at += len;
  return true;
}

static bool four_digits(reader *in, uint32_t *value) {
  *value = 0;
  for (int i = 0; i < 4; i++, in->at++) {
    if (in->at == in->json.len) return false;
    uint8_t digit = in->json.ptr[in->at];
    if (digit >= '0' && digit <= '9') *value = *value * 16 + (digit - '0');
    else if (digit >= 'a' && digit <= 'f') *value = *value * 16 + (digit - 'a' + 10);
    else if (digit >= 'A' && digit <= 'F') *value = *value * 16 + (digit - 'A' + 10);
    else return false;
  }
  return true;
}

static size_t put_utf8(uint8_t *to, uint32_t point) {
  if (point < 0x80) return to[0] = (uint8_t)point, 1;
  if (point < 0x800) return to[0] = (uint8_t)(0xc0 | point >> 6), to[1] = (uint8_t)(0x80 | (point & 0x3f)), 2;
  if (point < 0x10000) {
    to[0] = (uint8_t)(0xe0 | point >> 12);
    to[1] = (uint8_t)(0x80 | (point >> 6 & 0x3f));
    to[2] = (uint8_t)(0x80 | (point & 0x3f));
    return 3;
  }
  to[0] = (uint8_t)(0xf0 | point >> 18);
  to[1] = (uint8_t)(0x80 | (point >> 12 & 0x3f));
  to[2] = (uint8_t)(0x80 | (point >> 6 & 0x3f));
  to[3] = (uint8_t)(0x80 | (point & 0x3f));
  return 4;
}

static quarry_status escaped(reader *in, uint8_t *to, size_t *len) {
  if (in->at == in->json.len) return invalid(in, "the string has no end");
  static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
  uint8_t name = in->json.ptr[in->at++];
  const char *known = name ? strchr(names, name) : NULL;
  if (known) {
    to[(*len)++] = (uint8_t)values[known - names];
    return QUARRY_OK;
  }
  uint32_t point, low;
  if (name != 'u' || !four_digits(in, &point)) return invalid(in, "no such escape");
  if (point >= 0xd800 && point < 0xdc00) {
    bool pair = in->json.len - in->at >= 2 && in->json.ptr[in->at] == '\\' && in->json.ptr[in->at + 1] == 'u';
    if (pair) in->at += 2;
    if (!pair || !four_digits(in, &low) || low < 0xdc00 || low > 0xdfff) return invalid(in, "half of a surrogate pair");
    point = 0x10000 + ((point - 0xd800) << 10) + (low - 0xdc00);
  } else if (point >= 0xdc00 && point < 0xe000) {
    return invalid(in, "half of a surrogate pair");
  }
  *len += put_utf8(to + *len, point);
  return QUARRY_OK;
}

static quarry_status read_string(reader *in, quarry_bytes *value) {
  if (!take(in, '"')) return invalid(in, "a string is expected");
  // An escape is never shorter than what it stands for.
  uint8_t *text = quarry_alloc(in->json.len - in->at + 1);
  size_t len = 0;
  for (;;) {
    if (in->at == in->json.len) return invalid(in, "the string has no end");
    uint8_t byte = in->json.ptr[in->at++];
    if (byte == '"') break;
    if (byte < 0x20) return invalid(in, "a control character in a string");
    if (byte == '\\') QUARRY_TRY(escaped(in, text, &len));
    else text[len++] = byte;
  }
  *value = quarry_view(text, len);
  return text_is_utf8(*value) ? QUARRY_OK : invalid(in, "the string is not UTF-8");
}

static quarry_status read_optional_string(reader *in, quarry_optional *value) {
  if (take_word(in, "null")) return QUARRY_OK;
  value->some = true;
  return read_string(in, &value->bytes);
}

static quarry_status read_limit(reader *in, uint32_t *value) {
  if (take_word(in, "null")) return QUARRY_OK;
  skip_space(in);
  size_t start = in->at;
  uint64_t number = 0;
  while (in->at < in->json.len && in->json.ptr[in->at] >= '0' && in->json.ptr[in->at] <= '9') {
    number = number * 10 + (in->json.ptr[in->at++] - '0');
    if (number > UINT32_MAX) return invalid(in, "the number is too large");
  }
  bool leading_zero = in->at - start > 1 && in->json.ptr[start] == '0';
  bool is_fraction = in->at < in->json.len && memchr(".eE", in->json.ptr[in->at], 3);
  if (in->at == start || leading_zero || is_fraction) return invalid(in, "a whole number is expected");
  if (number < 1 || number > MAX_LIMIT) {
    return quarry_fail("invalid-payload", "the payload was not understood: `limit` is 1 to %u, not %llu", MAX_LIMIT, (unsigned long long)number);
  }
  *value = (uint32_t)number;
  return QUARRY_OK;
}

static quarry_status read_flag(reader *in, bool *value) {
  *value = take_word(in, "true");
  return *value || take_word(in, "false") ? QUARRY_OK : invalid(in, "true or false is expected");
}

quarry_status scan_read(quarry_bytes payload, scan_request *request) {
  *request = (scan_request){.limit = DEFAULT_LIMIT};
  if (!payload.len) return QUARRY_OK;
  static const char *const fields[] = {"prefix", "start", "end", "limit", "reverse"};
  enum { PREFIX, START, END, LIMIT, REVERSE, FIELDS };
  bool seen[FIELDS] = {false}, reverse = false;
  reader in = {payload, 0};
  if (!take(&in, '{')) return invalid(&in, "an object is expected");
  for (bool first = true; !take(&in, '}'); first = false) {
    quarry_bytes name;
    if (!first && !take(&in, ',')) return invalid(&in, "`,` or `}` is expected");
    QUARRY_TRY(read_string(&in, &name));
    int field = 0;
    while (field < FIELDS && !quarry_equal(name, quarry_text(fields[field]))) field++;
    if (field == FIELDS) return invalid(&in, "no such field: there are `prefix`, `start`, `end`, `limit` and `reverse`");
    if (seen[field]) return invalid(&in, "a field is there twice");
    seen[field] = true;
    if (!take(&in, ':')) return invalid(&in, "`:` is expected");
    switch (field) {
      case PREFIX: QUARRY_TRY(read_optional_string(&in, &request->prefix)); break;
      case START: QUARRY_TRY(read_optional_string(&in, &request->range.start)); break;
      case END: QUARRY_TRY(read_optional_string(&in, &request->range.end)); break;
      case LIMIT: QUARRY_TRY(read_limit(&in, &request->limit)); break;
      case REVERSE: QUARRY_TRY(read_flag(&in, &reverse)); break;
    }
  }
  skip_space(&in);
  if (in.at != payload.len) return invalid(&in, "something follows the object");
  if (request->prefix.some && (request->range.start.some || request->range.end.some)) {
    return quarry_fail("invalid-payload", "the payload was not understood: give `prefix`, or `start` and `end`, and not both");
  }
  request->order = reverse ? QUARRY_DESCENDING : QUARRY_ASCENDING;
  return QUARRY_OK;
}
