//! Object stores by URL: list, read, create; the one address of object_store
