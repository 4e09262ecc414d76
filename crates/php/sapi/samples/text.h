/* Text of a bounded length, built without the allocator: PHP's thread and the sampler use it. */
#ifndef HOWDAH_TEXT_H
#define HOWDAH_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Each addition that does not fit is left out. */
struct howdah_text {
	char *bytes;
	size_t room;
	size_t len;
};

void howdah_text_add(struct howdah_text *text, const char *bytes, size_t len);
void howdah_text_put(struct howdah_text *text, const char *string);
void howdah_text_number(struct howdah_text *text, uint64_t number);
/* Nanoseconds as seconds, with three digits after the decimal point. */
void howdah_text_seconds(struct howdah_text *text, uint64_t nanoseconds);
/* The present time, like 2026-01-31T12:00:00.123Z. */
void howdah_text_time(struct howdah_text *text);
/* The prefix of a warning in the log, in the supervisor's format: time and level. */
void howdah_text_warning(struct howdah_text *text);
/* A JSON string with quotes. Bytes that are not UTF-8 become U+FFFD. */
void howdah_text_json(struct howdah_text *text, const char *string, size_t len);
/* The start of another member of a JSON object: a comma and the key. */
void howdah_text_key(struct howdah_text *text, const char *key);
/* Another member: a number, or a string. */
void howdah_text_member(struct howdah_text *text, const char *key, uint64_t number);
void howdah_text_string(struct howdah_text *text, const char *key, const char *value);
/* The string without characters that could end a line or move a cursor. */
void howdah_text_plain(struct howdah_text *text, const char *string, size_t len);
/* The same in a message of the log: a double quote behind `=` is `\"`, so that the string does not look like a field. */
void howdah_text_message(struct howdah_text *text, const char *string, size_t len);
size_t howdah_text_left(const struct howdah_text *text);

#endif
