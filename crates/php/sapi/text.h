/* Text of a bounded length, put together without the allocator: both of PHP's thread and of the sampler. */
#ifndef HOWDAH_TEXT_H
#define HOWDAH_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* What does not fit is left out. */
struct howdah_text {
	char *bytes;
	size_t room;
	size_t len;
};

void howdah_text_add(struct howdah_text *text, const char *bytes, size_t len);
void howdah_text_put(struct howdah_text *text, const char *string);
void howdah_text_number(struct howdah_text *text, uint64_t number);
/* Nanoseconds as seconds, with three digits after the point. */
void howdah_text_seconds(struct howdah_text *text, uint64_t nanoseconds);
/* As 2026-01-31T12:00:00.123Z. */
void howdah_text_time(struct howdah_text *text);
/* How a warning in the log begins, as those of the supervisor do: time and level. */
void howdah_text_warning(struct howdah_text *text);
/* A string of JSON, quoted. What is no UTF-8 becomes U+FFFD. */
void howdah_text_json(struct howdah_text *text, const char *string, size_t len);
/* Without characters that could end a line or move a cursor. */
void howdah_text_plain(struct howdah_text *text, const char *string, size_t len);
size_t howdah_text_left(const struct howdah_text *text);

#endif
