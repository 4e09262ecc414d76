/* FrankenPHP's functions. */
#ifndef HOWDAH_FRANKENPHP_H
#define HOWDAH_FRANKENPHP_H

void howdah_frankenphp_register(int module_type);

#endif
