#include "form.h"

#include <stdlib.h>

static uint8_t *reserve(list *to, size_t len) {
  if (to->room - to->len < len) {
    size_t room = to->room * 2 > to->len + len ? to->room * 2 : to->len + len;
    uint8_t *fresh = to->is_kept ? realloc(to->at, room) : quarry_alloc(room);
    if (!fresh) abort();
    if (!to->is_kept && to->len) memcpy(fresh, to->at, to->len);
    to->at = fresh;
    to->room = room;
  }
  uint8_t *at = to->at + to->len;
  to->len += len;
  return at;
}

static void append(list *to, quarry_bytes bytes) {
  if (bytes.len) memcpy(reserve(to, bytes.len), bytes.ptr, bytes.len);
}

static void put_length(uint8_t *at, size_t len) {
  for (int i = 0; i < 4; i++) at[i] = (uint8_t)(len >> (8 * i));
}

void list_add(list *to, quarry_bytes item) {
  put_length(reserve(to, 4), item.len);
  append(to, item);
}

void list_add_text(list *to, const char *item) { list_add(to, quarry_text(item)); }
void list_add_number(list *to, uint64_t item) { list_add(to, quarry_printf("%llu", (unsigned long long)item)); }
void list_add_flag(list *to, bool item) { list_add_text(to, item ? "1" : "0"); }

void list_add_option(list *to, quarry_optional item) {
  size_t opened = list_open(to);
  if (item.some) {
    append(to, QUARRY_BYTES("+"));
    append(to, item.bytes);
  }
  list_close(to, opened);
}

void list_join(list *to, const list *from) { append(to, list_bytes(from)); }

size_t list_open(list *to) {
  reserve(to, 4);
  return to->len;
}

void list_close(list *to, size_t opened) { put_length(to->at + opened - 4, to->len - opened); }

quarry_bytes list_bytes(const list *of) { return quarry_view(of->at, of->len); }

bool list_next(quarry_bytes *rest, quarry_bytes *item) {
  if (rest->len < 4) return false;
  size_t len = 0;
  for (int i = 0; i < 4; i++) len |= (size_t)rest->ptr[i] << (8 * i);
  if (rest->len - 4 < len) return false;
  *item = quarry_view(rest->ptr + 4, len);
  *rest = quarry_view(rest->ptr + 4 + len, rest->len - 4 - len);
  return true;
}

bool number_of(quarry_bytes item, uint64_t *number) {
  *number = 0;
  for (size_t i = 0; i < item.len; i++) {
    uint8_t digit = (uint8_t)(item.ptr[i] - '0');
    if (digit > 9 || __builtin_mul_overflow(*number, (uint64_t)10, number) || __builtin_add_overflow(*number, (uint64_t)digit, number)) return false;
  }
  return item.len > 0;
}

bool is_text(quarry_bytes item) {
  for (size_t i = 0; i < item.len;) {
    uint8_t first = item.ptr[i++];
    size_t more = first < 0x80 ? 0 : first < 0xc2 ? 4 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : first < 0xf5 ? 3 : 4;
    if (more == 4 || item.len - i < more) return false;
    if (!more) continue;
    // The second byte says what is too long, a surrogate, or beyond Unicode.
    uint8_t least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    uint8_t most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (item.ptr[i] < least || item.ptr[i] > most) return false;
    for (size_t j = 1; j < more; j++) {
      if ((item.ptr[i + j] & 0xc0) != 0x80) return false;
    }
    i += more;
  }
  return true;
}
