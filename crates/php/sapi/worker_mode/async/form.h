/* Async mode: the form in the body of a request. */
#ifndef HOWDAH_ASYNC_FORM_H
#define HOWDAH_ASYNC_FORM_H

#include "php.h"

struct howdah_form {
	/* The rest is valid if it is true. */
	bool is_parsed;
	/* Arrays as $_POST and $_FILES would have them. */
	zval post, files;
	/* The names of the uploaded files. */
	zval uploads;
};

/* Whether a body with this Content-Type, which may be NULL, is a form. */
bool howdah_async_is_form(const char *content_type);
/* Parses a body. One that is no form makes empty arrays. */
void howdah_async_parse_form(const char *content_type, const zend_string *body, struct howdah_form *form);
/* Removes the uploaded files that the script has not moved. */
void howdah_async_free_form(struct howdah_form *form);

#endif
