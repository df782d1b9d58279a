// Text: what a scan replies with, and how keys are shown.
#ifndef KV_TEXT_H
#define KV_TEXT_H

#include "quarry.h"

// Bytes that grow, in the handler's memory. All zero to begin with.
typedef struct {
  uint8_t *at;
  size_t len;
  size_t room;
} text_buffer;

void text_append(text_buffer *buffer, quarry_bytes bytes);
// `"name":"..."`, or `"name_base64":"..."` for what is not UTF-8.
void text_append_field(text_buffer *buffer, const char *name, quarry_bytes bytes);
bool text_is_utf8(quarry_bytes bytes);
// Printable ASCII as it is, the rest as escapes.
quarry_bytes text_escaped(quarry_bytes bytes);

#endif
