//! Queries as Go reads them: percent and plus decoded, repeated names kept in order.

use axum::extract::Query;
use axum::http::Uri;

/// All pairs of a query. One that cannot be read has none.
pub(crate) fn pairs_of(query: &str) -> Vec<(String, String)> {
    let uri = Uri::builder().path_and_query(format!("/?{query}")).build();
    let pairs = uri.ok().and_then(|uri| Query::<Vec<(String, String)>>::try_from_uri(&uri).ok());
    pairs.map(|pairs| pairs.0).unwrap_or_default()
}

/// Every value of one name.
pub(crate) fn values<'a>(
    pairs: &'a [(String, String)],
    name: &'a str,
) -> impl Iterator<Item = &'a str> {
    pairs.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
}
