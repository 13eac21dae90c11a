//! An interpreter of packetdrill's language that runs scripts against plumb's stack in virtual time.
//!
//! A script injects packets, makes system calls and says which packets the stack must send and when. This is an
//! implementation from the language's documentation; it neither contains nor needs packetdrill.
#![forbid(unsafe_code)]

pub mod code;
pub mod lexer;
pub mod outcome;
pub mod packets;
pub mod parser;
pub mod runner;
pub mod script;
pub mod settings;
pub mod sockets;
pub mod world;
