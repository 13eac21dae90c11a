//! Two connections over a link in virtual time: what they promise each other, whatever the link does.

mod clean_link;
mod hostile;
mod pair;
mod theory;
mod transfer;
