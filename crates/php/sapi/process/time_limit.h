/* PHP's timer for max_execution_time. */
#ifndef HOWDAH_TIME_LIMIT_H
#define HOWDAH_TIME_LIMIT_H

/* Lets PHP set the handler of the timer's signal, and unblock the signal, in any case. */
void howdah_time_limit_check(void);

#endif
