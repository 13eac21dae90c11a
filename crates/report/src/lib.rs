//! From findings to pages: figures, terminal text, HTML, Markdown, CSV and metrics for Prometheus.
//!
//! Pure: a document goes in, a string comes out. Left out: any measured literal, any reading of
//! the environment (colour, width and character set arrive in [`terminal::TerminalStyle`]), any file.
#![forbid(unsafe_code)]
#![expect(
    clippy::format_push_string,
    clippy::format_collect,
    reason = "pages are assembled from formatted pieces; writing to a String returns an error that \
              cannot happen, and an allocation more is nothing beside a measurement"
)]

pub mod advice;
pub mod csv;
pub mod figure;
pub mod headline;
pub mod html;
pub mod markdown;
pub mod name;
pub mod printable;
pub mod prometheus;
pub mod registry;
pub mod scaling;
pub mod section;
pub mod statement;
pub mod table;
pub mod terminal;
pub mod value;
pub mod verdict;
