/* The numbers of opcache. */
#ifndef HOWDAH_OPCACHE_H
#define HOWDAH_OPCACHE_H

/* Reports them, if that is due. PHP is active, and runs no code. */
void howdah_opcache_report(void);

#endif
