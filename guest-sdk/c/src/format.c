// `quarry_printf`. The one of the C library brings floating point and files along: 9 KB, and imports of WASI.
#include "internal.h"

// Counts what is written, and writes it where there is room for it.
typedef struct {
  uint8_t *at;
  size_t len;
} sink;

static void put(sink *to, char byte) {
  if (to->at) to->at[to->len] = (uint8_t)byte;
  to->len++;
}

static void fill(sink *to, char byte, size_t wanted, size_t has) {
  for (; has < wanted; has++) put(to, byte);
}

static uintmax_t magnitude(intmax_t value) { return value < 0 ? -(uintmax_t)value : (uintmax_t)value; }

static intmax_t signed_of(char length, va_list *args) {
  switch (length) {
    case 'H': return (signed char)va_arg(*args, int);
    case 'h': return (short)va_arg(*args, int);
    case 'l': return va_arg(*args, long);
    case 'L': return va_arg(*args, long long);
    case 'z': case 't': return va_arg(*args, ptrdiff_t);
    case 'j': return va_arg(*args, intmax_t);
    default: return va_arg(*args, int);
  }
}

static uintmax_t unsigned_of(char length, va_list *args) {
  switch (length) {
    case 'H': return (unsigned char)va_arg(*args, unsigned);
    case 'h': return (unsigned short)va_arg(*args, unsigned);
    case 'l': return va_arg(*args, unsigned long);
    case 'L': return va_arg(*args, unsigned long long);
    case 'z': case 't': return va_arg(*args, size_t);
    case 'j': return va_arg(*args, uintmax_t);
    default: return va_arg(*args, unsigned);
  }
}

static void format_to(sink *to, const char *format, va_list *args) {
  for (; *format; format++) {
    if (*format != '%') {
      put(to, *format);
      continue;
    }
    const char *directive = format++;
    bool left = false, zeros = false, has_precision = false;
    for (; *format == '-' || *format == '0'; format++) *format == '-' ? (left = true) : (zeros = true);
    size_t width = 0, precision = 0;
    if (*format == '*') {
      int given = va_arg(*args, int);
      left = left || given < 0;
      width = given < 0 ? -(unsigned)given : (unsigned)given;
      format++;
    }
    for (; *format >= '0' && *format <= '9'; format++) width = width * 10 + (size_t)(*format - '0');
    if (*format == '.') {
      has_precision = true;
      if (*++format == '*') {
        int given = va_arg(*args, int);
        has_precision = given >= 0;
        precision = given >= 0 ? (size_t)given : 0;
        format++;
      }
      for (; *format >= '0' && *format <= '9'; format++) precision = precision * 10 + (size_t)(*format - '0');
    }
    char length = 0;
    for (; *format && strchr("hlztj", *format); format++) length = *format == length ? (length == 'h' ? 'H' : 'L') : *format;

    char digits[24];
    const char *text = digits;
    size_t len = 0;
    const char *sign = "";
    switch (*format) {
      case '%':
        put(to, '%');
        continue;
      case 'c':
        digits[0] = (char)va_arg(*args, int);
        len = 1;
        zeros = false;
        break;
      case 's':
        text = va_arg(*args, const char *);
        if (!text) text = "(null)";
        while ((!has_precision || len < precision) && text[len]) len++;
        zeros = false;
        break;
      case 'd': case 'i': case 'u': case 'x': case 'p': {
        uintmax_t value;
        if (*format == 'd' || *format == 'i') {
          intmax_t number = signed_of(length, args);
          value = magnitude(number);
          if (number < 0) sign = "-";
        } else if (*format == 'p') {
          value = (uintptr_t)va_arg(*args, void *);
          sign = "0x";
        } else {
          value = unsigned_of(length, args);
        }
        unsigned base = *format == 'x' || *format == 'p' ? 16 : 10;
        char *end = digits + sizeof digits, *at = end;
        while (value) {
          *--at = "0123456789abcdef"[value % base];
          value /= base;
        }
        if (at == end && !(has_precision && !precision)) *--at = '0';
        text = at;
        len = (size_t)(end - at);
        break;
      }
      default:
        // Not one of ours, or the format ended: shown as it is, and nothing after it is to be trusted.
        while (*directive) put(to, *directive++);
        return;
    }
    bool is_number = *format != 's' && *format != 'c';
    size_t shown = is_number && has_precision && precision > len ? precision : len;
    size_t total = shown + strlen(sign);
    bool pad_zeros = zeros && !left && !has_precision;
    if (!left && !pad_zeros) fill(to, ' ', width, total);
    for (; *sign; sign++) put(to, *sign);
    if (pad_zeros) fill(to, '0', width, total);
    fill(to, '0', shown, len);
    for (size_t i = 0; i < len; i++) put(to, text[i]);
    if (left) fill(to, ' ', width, total);
  }
}

quarry_bytes quarry_vprintf(const char *format, va_list args) {
  va_list again;
  va_copy(again, args);
  sink counted = {NULL, 0};
  format_to(&counted, format, &again);
  va_end(again);
  va_copy(again, args);
  sink written = {quarry_alloc(counted.len ? counted.len : 1), 0};
  format_to(&written, format, &again);
  va_end(again);
  return quarry_view(written.at, written.len);
}

quarry_bytes quarry_printf(const char *format, ...) {
  va_list args;
  va_start(args, format);
  quarry_bytes text = quarry_vprintf(format, args);
  va_end(args);
  return text;
}
