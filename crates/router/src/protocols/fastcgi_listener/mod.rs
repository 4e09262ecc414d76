//! FastCGI: a web server in front, such as nginx, sends requests as it sends them to PHP-FPM.
//!
//! - `connection`: serves a connection to its end, one request at a time; `clock`: its time-outs
//! - `link`: the records of a connection, and its socket
//! - `request_head`: the variables of a request become a head like those of HTTP; `request_body`: a body on its way
//! - `response_head`: the head of a CGI response
//!
//! The same protocol towards PHP-FPM is [`backends::fastcgi`](crate::backends::fastcgi).

pub mod clock;
pub mod connection;
mod link;
pub mod request_body;
mod request_head;
mod response_head;
