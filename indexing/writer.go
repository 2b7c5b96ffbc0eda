package indexing

// Owner is who entries of an index come from. An owner has one value for a key at most.
type Owner string
