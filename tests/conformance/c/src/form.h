// The form of everything: a list of byte strings, each with its length before it.
#ifndef FORM_H
#define FORM_H

#include "quarry.h"

// A list that is being written, in the handler's memory or in the instance's.
typedef struct {
  uint8_t *at;
  size_t len;
  size_t room;
  bool is_kept;
} list;

// Adds an item.
void list_add(list *to, quarry_bytes item);
void list_add_text(list *to, const char *item);
void list_add_number(list *to, uint64_t item);
void list_add_flag(list *to, bool item);
void list_add_option(list *to, quarry_optional item);
// Adds the items of another list.
void list_join(list *to, const list *from);
// Begins an item that is a list itself, and ends it.
size_t list_open(list *to);
void list_close(list *to, size_t opened);
// What was written.
quarry_bytes list_bytes(const list *of);

// Takes the next item of a list; false where it is cut short. Not to be asked at the end.
bool list_next(quarry_bytes *rest, quarry_bytes *item);
// Reads a number.
bool number_of(quarry_bytes item, uint64_t *number);
// Whether bytes are UTF-8.
bool is_text(quarry_bytes item);

#endif
