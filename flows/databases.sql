-- The image of PostgreSQL makes the database prefect; this one is MLflow's.
CREATE DATABASE mlflow OWNER anchorloop;
