/* Text of a bounded length, without allocator, locale or lock: it may be used while another thread forks. */

#include "samples/text.h"
#include <stdbool.h>
#include <string.h>
#include <time.h>

void howdah_text_add(struct howdah_text *text, const char *bytes, size_t len)
{
	if (len <= howdah_text_left(text)) {
		memcpy(text->bytes + text->len, bytes, len);
		text->len += len;
	}
}

size_t howdah_text_left(const struct howdah_text *text)
{
	return text->room - text->len;
}

void howdah_text_put(struct howdah_text *text, const char *string)
{
	howdah_text_add(text, string, strlen(string));
}

/* Adds at least this number of digits. */
static void put_digits(struct howdah_text *text, uint64_t number, size_t least)
{
	char digits[20];
	size_t at = sizeof(digits);

	do {
		digits[--at] = (char) ('0' + number % 10);
		number /= 10;
	} while (number > 0 || sizeof(digits) - at < least);
	howdah_text_add(text, digits + at, sizeof(digits) - at);
}

void howdah_text_number(struct howdah_text *text, uint64_t number)
{
	put_digits(text, number, 1);
}

void howdah_text_seconds(struct howdah_text *text, uint64_t nanoseconds)
{
	put_digits(text, nanoseconds / 1000000000, 1);
	howdah_text_put(text, ".");
	put_digits(text, nanoseconds / 1000000 % 1000, 3);
}

/* gmtime_r() takes a lock. If PHP's thread forks while the sampler has it, the lock stays taken in the child. Years are
 * counted from March, so that the leap day is the last one. */
void howdah_text_time(struct howdah_text *text)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	uint64_t seconds = (uint64_t) now.tv_sec % 86400;
	uint64_t days = (uint64_t) now.tv_sec / 86400 + 719468;
	uint64_t era = days / 146097, of_era = days % 146097;
	uint64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
	uint64_t of_year = of_era - (365 * year + year / 4 - year / 100);
	uint64_t month = (5 * of_year + 2) / 153;
	uint64_t parts[] = {
		era * 400 + year + (month >= 10), month < 10 ? month + 3 : month - 9, of_year - (153 * month + 2) / 5 + 1,
		seconds / 3600, seconds / 60 % 60, seconds % 60, (uint64_t) now.tv_nsec / 1000000,
	};
	static const char *const after[] = { "-", "-", "T", ":", ":", ".", "Z" };

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		put_digits(text, parts[i], i == 0 ? 4 : i == 6 ? 3 : 2);
		howdah_text_put(text, after[i]);
	}
}

void howdah_text_warning(struct howdah_text *text)
{
	howdah_text_time(text);
	howdah_text_put(text, "  WARN ");
}

/* The length of the UTF-8 character that begins here, if it is complete and in its shortest form; otherwise 0. */
static size_t character(const unsigned char *at, size_t left)
{
	size_t len = at[0] < 0x80 ? 1 : at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : at[0] < 0xf5 ? 4 : 0;

	if (len == 0 || len > left) {
		return 0;
	}
	for (size_t i = 1; i < len; i++) {
		if ((at[i] & 0xc0) != 0x80) {
			return 0;
		}
	}
	bool wrong = (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) || (at[0] == 0xf0 && at[1] < 0x90)
		|| (at[0] == 0xf4 && at[1] > 0x8f);
	return wrong ? 0 : len;
}

/* Control characters of ASCII, and of the C1 set (U+0080 to U+009F). */
static bool is_control(const unsigned char *at, size_t len)
{
	return len == 1 ? at[0] < 0x20 || at[0] == 0x7f : len == 2 && at[0] == 0xc2 && at[1] < 0xa0;
}

void howdah_text_json(struct howdah_text *text, const char *string, size_t len)
{
	static const char hex[] = "0123456789abcdef";
	const unsigned char *at = (const unsigned char *) string, *end = at + len;

	/* 8 bytes are enough for the longest escape and the closing quote. */
	howdah_text_put(text, "\"");
	while (at < end && howdah_text_left(text) > 8) {
		size_t bytes = character(at, (size_t) (end - at));
		if (bytes == 0) {
			howdah_text_put(text, "\\ufffd");
		} else if (is_control(at, bytes)) {
			unsigned char code = at[bytes - 1];
			char escape[] = { '\\', 'u', '0', '0', hex[code >> 4], hex[code & 15] };
			howdah_text_add(text, escape, sizeof(escape));
		} else {
			if (*at == '"' || *at == '\\') {
				howdah_text_put(text, "\\");
			}
			howdah_text_add(text, (const char *) at, bytes);
		}
		at += bytes ? bytes : 1;
	}
	howdah_text_put(text, "\"");
}

static void put_plain(struct howdah_text *text, const char *string, size_t len, bool in_message)
{
	const unsigned char *at = (const unsigned char *) string, *end = at + len;

	while (at < end) {
		size_t bytes = character(at, (size_t) (end - at));
		if (bytes == 0 || is_control(at, bytes)) {
			howdah_text_put(text, "?");
		} else if (in_message && *at == '"' && text->len > 0 && text->bytes[text->len - 1] == '=') {
			howdah_text_put(text, "\\\"");
		} else {
			howdah_text_add(text, (const char *) at, bytes);
		}
		at += bytes ? bytes : 1;
	}
}

void howdah_text_plain(struct howdah_text *text, const char *string, size_t len)
{
	put_plain(text, string, len, false);
}

void howdah_text_message(struct howdah_text *text, const char *string, size_t len)
{
	put_plain(text, string, len, true);
}

void howdah_text_key(struct howdah_text *text, const char *key)
{
	howdah_text_put(text, ",\"");
	howdah_text_put(text, key);
	howdah_text_put(text, "\":");
}

void howdah_text_member(struct howdah_text *text, const char *key, uint64_t number)
{
	howdah_text_key(text, key);
	howdah_text_number(text, number);
}

void howdah_text_string(struct howdah_text *text, const char *key, const char *value)
{
	howdah_text_key(text, key);
	howdah_text_json(text, value, strlen(value));
}
