/* The memory that a worker script keeps from one request to the next, for `howdah leaks`. See kept_memory.c. */
#ifndef HOWDAH_KEPT_MEMORY_H
#define HOWDAH_KEPT_MEMORY_H

/* All of these do nothing while no recording goes on. */

/* A request ends: notes its name. It is still the current one of the exchange. */
void howdah_kept_memory_note_request(void);
/* Frees cycles that PHP would free later. Destructors run: call it where code of the script may run. */
void howdah_kept_memory_collect(void);
/* Records the memory after the request, and after the code that ran behind it. */
void howdah_kept_memory_record(void);

#endif
