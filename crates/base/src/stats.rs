//! Map of the estimators.
