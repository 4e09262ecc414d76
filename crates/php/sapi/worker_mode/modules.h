/* PHP's modules that keep data of a request: in worker mode they end and start with each request. */

#ifndef HOWDAH_MODULES_H
#define HOWDAH_MODULES_H

/* Before the worker script. */
void howdah_modules_find(void);
void howdah_modules_start(void);
void howdah_modules_stop(void);

#endif
