//! The FastCGI protocol (FastCGI Specification 1.0, Open Market, 1996), as howdah speaks it to PHP-FPM and other servers,
//! and to web servers that have howdah run their scripts.
//!
//! A connection carries records: a header of 8 bytes, content of up to 65535 bytes, and padding. Each record belongs to a
//! request, or to none, if it is about the connection. The web server sends a request as the streams PARAMS and STDIN, and
//! gets the streams STDOUT and STDERR, and a record that ends the request. STDOUT begins with the head of a CGI response.
//!
//! - [`record`]: headers, and the rules that the other side may break
//! - [`name_value`]: lists of names and values, which PARAMS and management records have as content
//!
//! In front of a FastCGI server:
//!
//! - [`request`]: the records of a request
//! - [`answer`]: the records of a server become pieces of a response
//! - [`head`]: the head of a CGI response
//!
//! As a FastCGI server:
//!
//! - [`request_reader`]: the records of a web server become pieces of a request
//! - [`reply`]: the records of a response, and answers about the server itself
//!
//! Nothing here reads or writes a descriptor. The other side is not trusted: a reader keeps no more than the header of a
//! record, or a list up to its limit, and bytes that break a rule are a [`Violation`](record::Violation).

#![forbid(unsafe_code)]

pub mod answer;
pub mod head;
pub mod name_value;
pub mod record;
pub mod reply;
pub mod request;
pub mod request_reader;
