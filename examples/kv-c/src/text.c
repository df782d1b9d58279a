#include "text.h"

static void reserve(text_buffer *buffer, size_t more) {
  if (buffer->room - buffer->len >= more) return;
  // Doubled, so that the copies left behind in the handler's memory are no more than the buffer itself.
  size_t room = buffer->room * 2 > buffer->len + more ? buffer->room * 2 : buffer->len + more + 1024;
  uint8_t *at = quarry_alloc(room);
  if (buffer->len) memcpy(at, buffer->at, buffer->len);
  buffer->at = at;
  buffer->room = room;
}

void text_append(text_buffer *buffer, quarry_bytes bytes) {
  if (!bytes.len) return;
  reserve(buffer, bytes.len);
  memcpy(buffer->at + buffer->len, bytes.ptr, bytes.len);
  buffer->len += bytes.len;
}

static void append_json(text_buffer *buffer, quarry_bytes text) {
  static const char special[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt", digits[] = "0123456789abcdef";
  reserve(buffer, text.len);
  size_t from = 0;
  for (size_t i = 0; i < text.len; i++) {
    uint8_t byte = text.ptr[i];
    if (byte >= 0x20 && byte != '"' && byte != '\\') continue;
    text_append(buffer, quarry_view(text.ptr + from, i - from));
    from = i + 1;
    const char *known = byte ? strchr(special, byte) : NULL;
    if (known) {
      text_append(buffer, quarry_view((char[]){'\\', names[known - special]}, 2));
    } else {
      text_append(buffer, quarry_view((char[]){'\\', 'u', '0', '0', digits[byte >> 4], digits[byte & 15]}, 6));
    }
  }
  text_append(buffer, quarry_view(text.ptr + from, text.len - from));
}

static void append_base64(text_buffer *buffer, quarry_bytes bytes) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  reserve(buffer, (bytes.len + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.len; i += 3) {
    size_t left = bytes.len - i;
    uint32_t group = (uint32_t)bytes.ptr[i] << 16 | (left > 1 ? (uint32_t)bytes.ptr[i + 1] << 8 : 0) | (left > 2 ? bytes.ptr[i + 2] : 0);
    buffer->at[buffer->len++] = (uint8_t)digits[group >> 18];
    buffer->at[buffer->len++] = (uint8_t)digits[group >> 12 & 63];
    buffer->at[buffer->len++] = left > 1 ? (uint8_t)digits[group >> 6 & 63] : '=';
    buffer->at[buffer->len++] = left > 2 ? (uint8_t)digits[group & 63] : '=';
  }
}

void text_append_field(text_buffer *buffer, const char *name, quarry_bytes bytes) {
  bool is_text = text_is_utf8(bytes);
  text_append(buffer, QUARRY_BYTES("\""));
  text_append(buffer, quarry_text(name));
  text_append(buffer, is_text ? QUARRY_BYTES("\":\"") : QUARRY_BYTES("_base64\":\""));
  if (is_text) append_json(buffer, bytes);
  else append_base64(buffer, bytes);
  text_append(buffer, QUARRY_BYTES("\""));
}

// No surrogates, nothing above U+10FFFF, and no form that is longer than needed.
bool text_is_utf8(quarry_bytes bytes) {
  for (size_t i = 0; i < bytes.len;) {
    uint8_t byte = bytes.ptr[i++];
    if (byte < 0x80) continue;
    size_t more = byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : 1;
    if (byte < 0xc2 || byte > 0xf4 || bytes.len - i < more) return false;
    uint8_t low = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80, high = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
    for (; more; more--, low = 0x80, high = 0xbf) {
      uint8_t next = bytes.ptr[i++];
      if (next < low || next > high) return false;
    }
  }
  return true;
}

quarry_bytes text_escaped(quarry_bytes bytes) {
  static const char special[] = "\"'\\\n\r\t", names[] = "\"'\\nrt";
  text_buffer shown = {0};
  for (size_t i = 0; i < bytes.len; i++) {
    uint8_t byte = bytes.ptr[i];
    const char *known = byte ? strchr(special, byte) : NULL;
    if (known) text_append(&shown, quarry_view((char[]){'\\', names[known - special]}, 2));
    else if (byte >= 0x20 && byte < 0x7f) text_append(&shown, quarry_view(&byte, 1));
    else text_append(&shown, quarry_printf("\\x%02x", byte));
  }
  return quarry_view(shown.at, shown.len);
}
