/* The parts of the baseline. Each keeps the state that the boot has left, and restores it after a request. */
#ifndef HOWDAH_BASELINE_PARTS_H
#define HOWDAH_BASELINE_PARTS_H

/* The globals of a PHP extension; NULL if it is not loaded. */
void *howdah_globals_of(const char *extension);

void howdah_take_settings(void);
void howdah_restore_settings(void);

void howdah_take_handlers(void);
void howdah_restore_handlers(void);

void howdah_take_functions(void);
void howdah_restore_functions(void);
/* Gives PHP the shutdown functions of the boot, after those that it has. */
void howdah_return_functions(void);

void howdah_take_streams(void);
void howdah_restore_context(void);
/* 0 if PHP has released a wrapper of the boot: then no other request may run. */
int howdah_restore_wrappers(void);

void howdah_take_sessions(void);
void howdah_restore_sessions(void);

/* For the module's start: wraps the functions of PHP whose calls are noted. */
void howdah_watch_extensions(void);
void howdah_take_extensions(void);
void howdah_restore_extensions(void);

/* The same for these functions. */
void howdah_watch_process(void);
void howdah_take_process(void);
void howdah_restore_process(void);

/* The same for these. */
void howdah_watch_libxml(void);
/* The boot begins: preloaded scripts have ended. */
void howdah_begin_libxml(void);
void howdah_take_libxml(void);
/* 0 if the function of the boot could not be set again, or an exception came meanwhile: then no other request may run. */
int howdah_restore_libxml(void);

#endif
