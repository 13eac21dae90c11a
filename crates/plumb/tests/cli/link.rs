//! `plumb link`: commands behind a link, the way out, labs that stay, trouble, and what is left behind.

mod check;
mod command;
mod errors;
mod gateway;
mod kills;
mod lateness;
mod persistent_lab;
mod test_home;
mod unprivileged;
