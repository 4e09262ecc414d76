/* The exchange with the client of the current request, for the SAPI's own files. */
#ifndef HOWDAH_EXCHANGE_H
#define HOWDAH_EXCHANGE_H

#include "howdah_sapi.h"
#include "SAPI.h"

/* Makes this the current request, and fills PHP's information about it. The boot of a worker script is a request without a
 * client. */
void howdah_exchange_begin(const struct howdah_request *request, int has_client);
/* The response is complete, unless it was already. */
void howdah_exchange_finish(void);
/* The same, and there is no current request any more. */
void howdah_exchange_end(void);

/* The current request; NULL without one. */
const struct howdah_request *howdah_exchange_request(void);
/* Whether this process may continue the exchange with the client. */
int howdah_exchange_is_open(void);
/* Whether the rest of the request's body did not arrive. */
int howdah_exchange_lost_its_body(void);
/* The script is over: from now on the body is read only to drop it. */
void howdah_exchange_drops_body(void);

/* Writes the head of a response, or of an interim one before it. The exchange is open. */
void howdah_exchange_send_head(int status, const char *reason, sapi_headers_struct *headers);

/* Runs the current request's script, in its folder. */
void howdah_run_script(void);

#endif
