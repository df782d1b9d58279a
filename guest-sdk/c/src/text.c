// Text at the border of the component. The host ends an instance that hands over text that is not UTF-8, so that names are checked before,
// and what people only read is repaired.
#include "internal.h"

// How many bytes the character at the front has; 0 where there is none.
static size_t character(const uint8_t *at, size_t len) {
  if (at[0] < 0x80) return 1;
  // The least value of the second byte for each first one keeps out what has a shorter form, the most halves of UTF-16 and what is no character.
  uint8_t least = 0x80, most = 0xbf;
  size_t size;
  if (at[0] >= 0xc2 && at[0] <= 0xdf) {
    size = 2;
  } else if (at[0] >= 0xe0 && at[0] <= 0xef) {
    size = 3;
    if (at[0] == 0xe0) least = 0xa0;
    if (at[0] == 0xed) most = 0x9f;
  } else if (at[0] >= 0xf0 && at[0] <= 0xf4) {
    size = 4;
    if (at[0] == 0xf0) least = 0x90;
    if (at[0] == 0xf4) most = 0x8f;
  } else {
    return 0;
  }
  if (len < size || at[1] < least || at[1] > most) return 0;
  for (size_t i = 2; i < size; i++) {
    if (at[i] < 0x80 || at[i] > 0xbf) return 0;
  }
  return size;
}

static bool is_text(quarry_bytes bytes) {
  for (size_t at = 0; at < bytes.len;) {
    size_t size = character(bytes.ptr + at, bytes.len - at);
    if (!size) return false;
    at += size;
  }
  return true;
}

quarry_bytes quarry_readable(quarry_bytes text) {
  static const uint8_t replacement[] = {0xef, 0xbf, 0xbd};
  if (is_text(text)) return text;
  uint8_t *made = quarry_alloc(text.len * sizeof replacement);
  size_t len = 0;
  for (size_t at = 0; at < text.len;) {
    size_t size = character(text.ptr + at, text.len - at);
    const uint8_t *from = size ? text.ptr + at : replacement;
    size_t count = size ? size : sizeof replacement;
    memcpy(made + len, from, count);
    len += count;
    at += size ? size : 1;
  }
  return quarry_view(made, len);
}

quarry_status quarry_name(const char *what, const char *name, quarry_wit_string_t *to) {
  if (!name) return quarry_fail("invalid-argument", "%s is a string, not NULL", what);
  quarry_bytes bytes = quarry_text(name);
  if (!is_text(bytes)) return quarry_fail("invalid-argument", "%s is UTF-8, and `%s` is not", what, name);
  *to = quarry_to_string(bytes);
  return QUARRY_OK;
}
