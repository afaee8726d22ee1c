"""The settings of a broker's parts, made of Kafka's settings, and the dynamic ones that ZooKeeper has."""
