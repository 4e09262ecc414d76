/* The state of PHP at the end of a worker script's boot, which each request starts with. */
#ifndef HOWDAH_BASELINE_H
#define HOWDAH_BASELINE_H

/* For the module's start: wraps the functions whose effects are restored. */
void howdah_baseline_watch(void);
/* The boot begins. */
void howdah_baseline_begin(void);
/* The boot is over. */
void howdah_baseline_take(void);
/* Restores it after a request. 0 if that is impossible: then no other request may run. */
int howdah_baseline_restore(void);
/* The script ends: the shutdown functions of the boot are due, after those of a request that a fatal error has ended. */
void howdah_baseline_end(void);

#endif
